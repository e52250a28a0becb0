"""Cosines and sines of rotary positions, with the scalings that long-context models use."""

from math import ceil, floor, log, pi
from typing import TYPE_CHECKING

from helmsman.hwdb.gguf_rope import longrope_magnitude
from helmsman.schemas.blocks.positions import (
    LinearScaling,
    Llama3Scaling,
    LongRope,
    ProportionalScaling,
    Rope,
    YarnScaling,
)
from helmsman.schemas.model import Model

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


LEAST_RAMP = 0.001
"""Pairs over which YaRN's ramp runs at least, as where both of its ends are one."""


def rope_tables(model: Model, capacity: int) -> "tuple[NDArray[np.float32], NDArray[np.float32]] | None":
    """f32 (capacity, rotary_dim / 2) cosines and sines of positions 0, 1, ...; None for learned positions.

    Angles are products in f32, as in the models' own code. LongRoPE's long factors are used when `capacity`
    exceeds the original context, and its attention scaling is part of the tables."""
    rope = model.dense.position
    return tables_of(rope, model.max_context, capacity) if isinstance(rope, Rope) else None


def tables_of(rope: Rope, max_context: int, capacity: int) -> "tuple[NDArray[np.float32], NDArray[np.float32]]":
    """Return the tables of one rotation; `max_context`: of the model."""
    import numpy as np

    frequencies = _frequencies(rope, capacity).astype(np.float32)
    angles = np.arange(capacity, dtype=np.float32)[:, None] * frequencies
    scale = np.float32(_attention_scaling(rope, max_context))
    return np.cos(angles) * scale, np.sin(angles) * scale


def _frequencies(rope: Rope, capacity: int) -> "NDArray[np.float64]":
    """Radians per position of every pair of dimensions, f64."""
    import numpy as np

    plain: NDArray[np.float64] = rope.theta ** -(np.arange(0, rope.rotary_dim, 2) / rope.rotary_dim)
    match rope.scaling:
        case LinearScaling():
            return plain / rope.scaling.factor
        case Llama3Scaling():
            return _llama3(plain, rope.scaling)
        case LongRope():
            far = capacity > rope.scaling.original_context
            factors = rope.scaling.long_factor if far else rope.scaling.short_factor
            return plain / np.array(factors, np.float64)
        case YarnScaling():
            return _yarn(plain, rope, rope.scaling)
        case ProportionalScaling():
            return np.where(np.arange(len(plain)) < rope.turned // 2, plain, 0.0)
        case scaling:
            assert scaling is None, "all kinds of scaling"
            return plain


def _yarn(plain: "NDArray[np.float64]", rope: Rope, scaling: YarnScaling) -> "NDArray[np.float64]":
    """Pairs that turn fast within the original context stay, slow ones are stretched, in a ramp between (YaRN)."""
    import numpy as np

    def pair(turns: float) -> float:
        """Return the pair that turns so often within the original context."""
        return rope.rotary_dim * log(scaling.original_context / (turns * 2 * pi)) / (2 * log(rope.theta))

    low, high = pair(scaling.beta_fast), pair(scaling.beta_slow)
    if scaling.truncate:
        low, high = float(floor(low)), float(ceil(high))
    low, high = max(low, 0.0), min(high, rope.rotary_dim - 1.0)
    ramp = ((np.arange(len(plain)) - low) / max(high - low, LEAST_RAMP)).clip(0.0, 1.0)
    return ramp * plain / scaling.factor + (1 - ramp) * plain


def _llama3(plain: "NDArray[np.float64]", scaling: Llama3Scaling) -> "NDArray[np.float64]":
    """Wavelengths well inside the original context stay, those beyond it are stretched, smoothly between."""
    turns = scaling.original_context * plain / (2 * pi)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    kept = ((turns - low) / (high - low)).clip(0.0, 1.0)
    return (1 - kept) * plain / scaling.factor + kept * plain


def _attention_scaling(rope: Rope, max_context: int) -> float:
    match rope.scaling:
        case LongRope():
            return longrope_magnitude(rope.scaling, max_context)
        case YarnScaling():
            return rope.scaling.magnitude
        case _:
            return 1.0
