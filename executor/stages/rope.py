"""Cosines and sines of rotary positions, with the scalings that long-context models use."""

from math import pi
from typing import TYPE_CHECKING

from helmsman.hwdb.gguf_rope import longrope_magnitude
from helmsman.schemas.blocks.positions import LinearScaling, Llama3Scaling, LongRope, Rope
from helmsman.schemas.model import Model

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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
        case scaling:
            assert scaling is None, "check_native refuses others"
            return plain


def _llama3(plain: "NDArray[np.float64]", scaling: Llama3Scaling) -> "NDArray[np.float64]":
    """Wavelengths well inside the original context stay, those beyond it are stretched, smoothly between."""
    turns = scaling.original_context * plain / (2 * pi)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    kept = ((turns - low) / (high - low)).clip(0.0, 1.0)
    return (1 - kept) * plain / scaling.factor + kept * plain


def _attention_scaling(rope: Rope, max_context: int) -> float:
    return longrope_magnitude(rope.scaling, max_context) if isinstance(rope.scaling, LongRope) else 1.0
