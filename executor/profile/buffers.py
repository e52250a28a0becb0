"""Matrices and caches to measure with: random, and together well beyond the last-level cache (E-HELM-30)."""

from functools import lru_cache
from math import ceil

import numpy as np
from numpy.typing import NDArray

from helmsman.executor._kernels import Buffer
from helmsman.executor.devices.memory import ScalarT, arena_beside, view
from helmsman.executor.system.machine import beyond_caches
from helmsman.schemas.formats import Format, StoredFormat, is_plain

_LINE = 64
"""Buffers begin at a multiple of so many bytes."""
_MODERATE = np.uint16(0xFF7F)
_NOT_SMALL = np.uint16(0x0040)
"""Bits of an f16 whose low byte is to lie between 64 and 127: one that it does not have, and one that it has."""
_BANK = (1 << 20) - 3
"""Values that are repeated: an odd number, so that no two buffers of a region begin with the same ones."""


def rotation(size: int, cache_bytes: int) -> list[Buffer]:
    """Buffers of `size` bytes, together well beyond the cache, filled with normal f16 values.

    The same bits are moderate numbers as bf16 and f32, too: no zeros, denormals, infinities or NaN."""
    return ReadRegions(cache_bytes).rotation(size)


class ReadRegions:
    """Memory of rotations that are only read, kept when they are dropped and handed out again as it is filled: memory
    that is touched for the first time took 0.6 s a GiB of a virtual machine, a fifth of a whole profile."""

    def __init__(self, cache_bytes: int) -> None:
        self._total = beyond_caches(cache_bytes)
        self._free: list[Buffer] = []
        self._taken: list[Buffer] = []

    def rotation(self, size: int) -> list[Buffer]:
        """Buffers of `size` bytes as `rotation` makes them, in a region that nobody has; neighbours do not follow each
        other, as little as the matrices of a pass do for the threads that divide them. In order, products of 3 MiB
        were one long read, and 5 to 8 % faster than each by itself (2 cores of an Intel Xeon)."""
        count, stride = max(2, ceil(self._total / size)), ceil(size / _LINE) * _LINE
        region = self._region(count * stride)
        places = np.random.default_rng(count).permutation(count).tolist()
        return [region.part(place * stride, size) for place in places]

    def drop(self) -> None:
        """Take all regions back."""
        self._free += self._taken
        self._taken = []

    def _region(self, size: int) -> Buffer:
        """The smallest free one of at least `size` bytes; else a new one, in place of the largest that is too small."""
        self._free.sort(key=lambda region: region.size)
        place = next((place for place, region in enumerate(self._free) if region.size >= size), None)
        if place is not None:
            region = self._free.pop(place)
        else:
            del self._free[-1:]
            (region,) = filled([arena_beside(size).alloc(size, "profile")])
        self._taken.append(region)
        return region


def filled(buffers: list[Buffer]) -> list[Buffer]:
    """Return `buffers`, filled with normal f16 values that differ from buffer to buffer.

    Every byte is also the exponent of a moderate power of two, as MXFP4 has one before each block: with any bytes
    products would be denormal numbers, which some processors are slow at."""
    values = _bank(1.0).astype(np.float16).view(np.uint16)
    return _filled(buffers, values & _MODERATE | _NOT_SMALL)


def filled_as(buffers: list[Buffer], fmt: Format, scale: float) -> list[Buffer]:
    """Return `buffers`, filled with values of `fmt` between scale / 2 and 2 scale, of either sign.

    Where values meet in attention they must be of a size that models have: of scores in the thousands the softmax is
    denormal numbers, which take ten times as long."""
    values = _bank(scale)
    if fmt == "bf16":
        return _filled(buffers, (values.view(np.uint32) >> 16).astype(np.uint16))
    return _filled(buffers, values.astype({"f16": np.float16, "f32": np.float32}[fmt]))


def filled_weights(buffers: list[Buffer], fmt: StoredFormat, scale: float) -> list[Buffer]:
    """Return `buffers` as `filled_as` does, for weights. Bytes of quantised ones are codes and f16 scales alike: small
    scales, as codes are up to 128."""
    return filled_as(buffers, fmt, scale) if is_plain(fmt) else filled_as(buffers, "f16", scale / 64)


def _filled(buffers: list[Buffer], bank: NDArray[ScalarT]) -> list[Buffer]:
    for index, buffer in enumerate(buffers):
        _fill(view(buffer, bank.dtype), bank[977 * index % _BANK :])
    return buffers


def _fill(values: NDArray[ScalarT], bank: NDArray[ScalarT]) -> None:
    """Repeat the first `_BANK` values of `bank`, touching every page once."""
    for start in range(0, values.size, _BANK):
        part = values[start : start + _BANK]
        part[:] = bank[: part.size]


@lru_cache(maxsize=2)
def _bank(scale: float) -> NDArray[np.float32]:
    """Return the same values twice over, so that they can be read from any place on."""
    rng = np.random.default_rng(11)
    magnitude = rng.uniform(0.5 * scale, 2.0 * scale, _BANK)
    values = np.where(rng.integers(0, 2, _BANK) == 1, magnitude, -magnitude)
    return np.tile(values.astype(np.float32), 2)
