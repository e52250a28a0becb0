"""Rotary positions from a `config.json`: transformers 4's `rope_scaling` and transformers 5's `rope_parameters`."""

from math import isclose

from helmsman.hwdb.config_fields import Fields
from helmsman.schemas.model import Family, LinearScaling, Llama3Scaling, LongRope, Rope

_MAX_CONTEXT = 2**28
_DEFAULT_THETA = 10000.0
# Phi3Config's documented default; the other families have none.
_PHI3_ORIGINAL_CONTEXT = 4096
_NEOX_ROTARY_SHARE = 0.25
"""GPTNeoXConfig's documented default of rotary_pct."""


def rope(fields: Fields, family: Family, head_dim: int, max_context: int) -> Rope:
    """Return the rotary embedding of a model; raises BadInputError naming a kind that is not covered."""
    scaling = _scaling_fields(fields)
    dim = _rotary_dim(fields, scaling, family, head_dim)
    return Rope(
        theta=_theta(fields, scaling),
        rotary_dim=dim,
        scaling=_scaling(fields, scaling, family, dim, max_context),
    )


def _scaling_fields(fields: Fields) -> Fields:
    # transformers 5 reads `rope_scaling or rope_parameters`, in this order.
    for key in ("rope_scaling", "rope_parameters"):
        if fields.has(key):
            return fields.inner(key)
    return Fields({}, fields.file)


def _theta(fields: Fields, scaling: Fields) -> float:
    if scaling.has("rope_theta"):
        return scaling.real("rope_theta")
    if fields.has("rope_parameters") and fields.inner("rope_parameters").has("rope_theta"):
        return fields.inner("rope_parameters").real("rope_theta")
    key = "rotary_emb_base" if fields.has("rotary_emb_base") else "rope_theta"
    return fields.real(key, _DEFAULT_THETA)


def _rotary_dim(fields: Fields, scaling: Fields, family: Family, head_dim: int) -> int:
    holder = scaling if scaling.has("partial_rotary_factor") else fields
    neox = family == "gpt_neox" and holder is fields
    key = "rotary_pct" if neox else "partial_rotary_factor"
    share = holder.real(key, _NEOX_ROTARY_SHARE if neox else 1.0, high=1.0)
    if share != 1.0 and family not in ("phi3", "gpt_neox"):
        raise holder.wrong(key, f"not covered in the family {family}", "remove it")
    dim = int(head_dim * share)
    if dim < 2 or dim % 2:
        key = "head_dim" if fields.has("head_dim") else "hidden_size"
        raise fields.wrong(key, f"gives {dim} rotary dimensions, which must be even", "correct the value")
    return dim


def _scaling(
    fields: Fields, scaling: Fields, family: Family, dim: int, max_context: int
) -> LinearScaling | Llama3Scaling | LongRope | None:
    key = "rope_type" if scaling.has("rope_type") else "type"
    kind = scaling.text(key, "default")
    if any(isinstance(value, dict) for value in scaling.content.values()):
        raise scaling.wrong(key, "not covered: rope parameters per layer type", "choose another model")
    match kind:
        case "default":
            return None
        case "linear":
            return LinearScaling(factor=scaling.real("factor"))
        case "llama3":
            return _llama3(fields, scaling)
        case "longrope" | "su":
            return _longrope(fields, scaling, family, dim, max_context)
    raise scaling.wrong(key, f"not covered: rope scaling {kind!r}", "covered: linear, llama3, longrope")


def _llama3(fields: Fields, scaling: Fields) -> Llama3Scaling:
    low, high = scaling.real("low_freq_factor"), scaling.real("high_freq_factor")
    if low >= high:
        raise scaling.wrong("high_freq_factor", f"must exceed low_freq_factor ({low:g})", "correct it")
    return Llama3Scaling(
        factor=scaling.real("factor"),
        low_freq_factor=low,
        high_freq_factor=high,
        original_context=_original_context(fields, scaling, None),
    )


def _longrope(fields: Fields, scaling: Fields, family: Family, dim: int, max_context: int) -> LongRope:
    original = _original_context(fields, scaling, _PHI3_ORIGINAL_CONTEXT if family == "phi3" else None)
    for key in ("attention_factor", "short_mscale", "long_mscale"):
        if scaling.has(key):
            raise scaling.wrong(key, "not covered: an explicit longrope magnitude", "remove it")
    # The magnitude follows from max_context / original; a factor that says otherwise is another model.
    ratio = max_context / original
    if scaling.has("factor") and not isclose(scaling.real("factor"), ratio):
        raise scaling.wrong("factor", f"must equal context / original context ({ratio:g})", "correct it")
    return LongRope(
        short_factor=scaling.reals("short_factor", dim // 2),
        long_factor=scaling.reals("long_factor", dim // 2),
        original_context=original,
    )


def _original_context(fields: Fields, scaling: Fields, default: int | None) -> int:
    key = "original_max_position_embeddings"
    holder = scaling if scaling.has(key) or not (fields.has(key) or default) else fields
    return holder.integer(key, default, high=_MAX_CONTEXT)
