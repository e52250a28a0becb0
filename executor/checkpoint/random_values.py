"""Pseudo-random tensors: the same values for a seed and a name on every platform, in chunks of rows.

Each value is a normal quantile picked by 16 raw generator bits from a table in the target format: that is
several times faster than drawing normals and rounding them, and raw generator streams never change between
numpy versions (NEP 19), unlike those of its distributions."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from helmsman.schemas.formats import Format

if TYPE_CHECKING:
    import numpy as np

CHUNK_ELEMENTS = 2**18  # 16-bit picks and results stay in the second-level cache
_LEVELS = 2**16


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a tensor's values are drawn: mean + scale x normal, times the factor of their row.

    `random_sign`: half the values are negated. `balanced`: odd columns negate the even ones before them, so that
    rows sum to zero (needs mean 0). `row_factors`: (row, factor) of the rows that stand out. `shift`: what is added to
    all of that."""

    scale: float
    mean: float = 0.0
    random_sign: bool = False
    balanced: bool = False
    row_factors: tuple[tuple[int, float], ...] = ()
    shift: float = 0.0


def value_chunks(
    recipe: Recipe, rows: int, columns: int, fmt: Format, seed: int, name: str
) -> "Iterator[np.ndarray[Any, Any]]":
    """The (rows, columns) values, a few rows at a time; bf16 as uint16. `seed` and `name` select the stream."""
    table = _table(recipe, 1.0, fmt)
    special = {factor: _table(recipe, factor, fmt) for _, factor in recipe.row_factors}
    bits = bit_generator(seed, name)
    step = max(1, CHUNK_ELEMENTS // columns)
    for first in range(0, rows, step):
        count = min(step, rows - first)
        picks = _picks(bits, count * columns).reshape(count, columns)
        if recipe.balanced:
            picks[:, 1::2] = ~picks[:, : columns // 2 * 2 : 2]  # the quantile of the opposite level
        values = table.take(picks, mode="clip")
        for row, factor in recipe.row_factors:
            if first <= row < first + count:
                values[row - first] = special[factor][picks[row - first]]
        yield values


def bit_generator(seed: int, name: str) -> "np.random.BitGenerator":
    """The raw generator of one tensor: streams of different names are independent."""
    import numpy as np

    key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:16], "little")
    return np.random.PCG64DXSM(np.random.SeedSequence([seed, key]))


def encode(values: "np.ndarray[Any, Any]", fmt: Format) -> "np.ndarray[Any, Any]":
    """Round f64 values to `fmt`, to nearest even, little-endian; bf16 as uint16. Values must be finite."""
    import numpy as np

    single = values.astype("<f4")
    if fmt == "f32":
        return single
    if fmt == "f16":
        return single.astype("<f2")
    raw = single.view("<u4")
    rounded: np.ndarray[Any, Any] = ((raw + 0x7FFF + ((raw >> 16) & 1)) >> 16).astype("<u2")
    return rounded


def _picks(bits: "np.random.BitGenerator", count: int) -> "np.ndarray[Any, Any]":
    raw: np.ndarray[Any, Any] = bits.random_raw(-(-count // 4))
    return raw.astype("<u8", copy=False).view("<u2")[:count]


@lru_cache(maxsize=64)  # the blocks of a model share their recipes
def _table(recipe: Recipe, factor: float, fmt: Format) -> "np.ndarray[Any, Any]":
    import numpy as np

    values = recipe.mean + recipe.scale * _quantiles()
    if recipe.random_sign:
        values = values * np.where(np.arange(_LEVELS) % 2, 1.0, -1.0)
    return encode(values * factor + recipe.shift, fmt)


@lru_cache(maxsize=1)
def _quantiles() -> "np.ndarray[Any, Any]":
    """Standard normal quantiles of the 2^16 equally likely levels, scaled to unit variance."""
    from statistics import NormalDist

    import numpy as np

    inverse = NormalDist().inv_cdf
    lower = np.array([inverse((level + 0.5) / _LEVELS) for level in range(_LEVELS // 2)])
    quantiles = np.concatenate([lower, -lower[::-1]])
    scaled: np.ndarray[Any, Any] = quantiles / np.sqrt(np.mean(quantiles**2))
    return scaled
