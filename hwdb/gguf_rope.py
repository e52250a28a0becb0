"""Rotary positions from a GGUF file: its metadata, and the factors per frequency that it keeps as tensors."""

import struct
from math import ceil, isclose, log, pi, sqrt

from helmsman.hwdb.config_fields import Fields
from helmsman.hwdb.gguf_configs.facts import Content
from helmsman.hwdb.gguf_header import Header, shortest
from helmsman.schemas.blocks.positions import LinearScaling, Llama3Scaling, LongRope, Rope
from helmsman.schemas.dense_model import Family
from helmsman.schemas.errors import BadInputError

FACTORS = "rope_freqs.weight"
LONG = "rope_factors_long.weight"
SHORT = "rope_factors_short.weight"
"""The tensors of factors per frequency: Llama 3's, and Phi's for long and for short contexts."""

ROPE_TENSORS = (FACTORS, LONG, SHORT)
_MAX_CONTEXT = 2**28
_DEFAULT_THETA = 10000.0
_LOW = 1.0
_HIGH = 4.0  # the frequency factors of every Llama 3 that was published
_F32_TOLERANCE = 1e-5
_LLAMA4_CONTEXT = 8192

Scaling = LinearScaling | Llama3Scaling | LongRope


def gguf_rope(
    header: Header, content: Content, fields: Fields, family: Family, head_dim: int, max_context: int
) -> Rope:
    """Return the rotary embedding of a model; raises BadInputError naming a kind that is not covered."""
    dim = fields.integer("rope.dimension_count", head_dim, high=head_dim)
    if dim % 2 or (dim != head_dim and family != "phi3"):
        raise fields.wrong("rope.dimension_count", f"must be {head_dim} in the family {family}", "choose another model")
    theta = fields.real("rope.freq_base", _DEFAULT_THETA)
    return Rope(theta=theta, rotary_dim=dim, scaling=_scaling(header, content, fields, theta, dim, max_context))


def _scaling(
    header: Header, content: Content, fields: Fields, theta: float, dim: int, max_context: int
) -> Scaling | None:
    if FACTORS in header.tensors:
        return llama3_parameters(header, small_tensor(header, content, FACTORS, dim // 2), theta, dim)
    if LONG in header.tensors or SHORT in header.tensors:
        long, short = (small_tensor(header, content, name, dim // 2) for name in (LONG, SHORT))
        return _longrope(fields, long, short, max_context)
    kind = fields.text("rope.scaling.type", "none")
    if kind == "linear":
        return LinearScaling(factor=fields.real("rope.scaling.factor"))
    if kind != "none":
        remedy = "covered: linear, and factors that the file has as tensors"
        raise fields.wrong("rope.scaling.type", "not covered", remedy)
    return None


def _longrope(fields: Fields, long: tuple[float, ...], short: tuple[float, ...], max_context: int) -> LongRope:
    original = fields.integer("rope.scaling.original_context_length", high=_MAX_CONTEXT)
    long_rope = LongRope(short_factor=short, long_factor=long, original_context=original)
    key, magnitude = "rope.scaling.attn_factor", longrope_magnitude(long_rope, max_context)
    if not isclose(fields.real(key, 1.0), magnitude, rel_tol=1e-4):
        raise fields.wrong(key, f"not covered: another magnitude than {magnitude:.6g}", "choose another model")
    return long_rope


def longrope_magnitude(scaling: LongRope, max_context: int) -> float:
    """By how much queries and keys are multiplied: sqrt(1 + ln s / ln original), s = context / original."""
    original = scaling.original_context
    return sqrt(1 + log(max_context / original) / log(original)) if max_context > original > 1 else 1.0


def llama3_parameters(header: Header, factors: tuple[float, ...], theta: float, dim: int) -> Llama3Scaling | None:
    """Return the parameters whose factors per frequency these are: converters keep the factors alone.

    The largest is the scaling's own. One between it and 1 tells the original context, given the bounds that every
    Llama 3 has; then all must be what these parameters give."""
    factor = max(factors)
    if min(factors) == factor == 1.0:
        return None
    between = [place for place, value in enumerate(factors) if 1.0 < value < factor]
    if between:
        place = between[len(between) // 2]
        kept = (1 / factors[place] - 1 / factor) / (1 - 1 / factor)
        turns = (kept * (_HIGH - _LOW) + _LOW) * 2 * pi
        context = round(turns * theta ** (2 * place / dim))
        scaling = Llama3Scaling(
            factor=factor, low_freq_factor=_LOW, high_freq_factor=_HIGH, original_context=min(max(context, 1), 10**9)
        )
        expected = llama3_factors(scaling, theta, dim)
        if all(isclose(a, b, rel_tol=_F32_TOLERANCE) for a, b in zip(factors, expected, strict=True)):
            return scaling
    message, remedy = "not covered: factors that are not Llama 3's", "choose another model"
    raise BadInputError(message, file=header.file, field=FACTORS, remedy=remedy)


def stepped_parameters(header: Header, factors: tuple[float, ...], theta: float, dim: int) -> Llama3Scaling | None:
    """Return the parameters of factors that are 1 up to a frequency and the scaling's own beyond it, as Llama 4's are.

    They leave the original context open between two neighbouring frequencies: 8192 tokens where that lies between.
    Raises BadInputError for other factors."""
    factor = max(factors)
    if factor == 1.0:
        return None
    plain = sum(value == 1.0 for value in factors)
    if factors != (1.0,) * plain + (factor,) * (len(factors) - plain):
        message, remedy = "not covered: factors that are not Llama 4's", "choose another model"
        raise BadInputError(message, file=header.file, field=FACTORS, remedy=remedy)
    longest, shortest_beyond = (2 * pi * theta ** (2 * place / dim) for place in (plain - 1, plain))
    context = _LLAMA4_CONTEXT if longest <= _LLAMA4_CONTEXT < shortest_beyond else max(ceil(longest), 1)
    return Llama3Scaling(factor=factor, low_freq_factor=1.0, high_freq_factor=1.0, original_context=context)


def llama3_factors(scaling: Llama3Scaling, theta: float, dim: int) -> tuple[float, ...]:
    """By how much Llama 3 divides each of its dim / 2 frequencies."""
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    result = []
    for place in range(0, dim, 2):
        turns = scaling.original_context * theta ** -(place / dim) / (2 * pi)
        kept = min(max((turns - low) / (high - low), 0.0), 1.0) if high > low else float(turns >= low)
        result.append(1 / ((1 - kept) / scaling.factor + kept))
    return tuple(result)


def small_tensor(header: Header, content: Content, name: str, count: int, most: float = 1e24) -> tuple[float, ...]:
    """Return the positive numbers, below `most`, of a small f32 tensor. Raises BadInputError."""
    place = header.tensors.get(name)
    if place is None or place.type.name != "f32" or place.shape != (count,):
        actual = None if place is None else f"{place.type.name} {list(place.shape)}"
        message, remedy = f"{count} values in f32 are expected", "choose another model"
        raise BadInputError(message, file=header.file, field=name, value=actual, remedy=remedy)
    values = tuple(map(shortest, struct.unpack(f"<{count}f", content(name))))
    if not all(0 < value < most for value in values):
        raise BadInputError("positive factors are expected", file=header.file, field=name, remedy="choose another file")
    return values
