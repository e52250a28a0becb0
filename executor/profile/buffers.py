"""Matrices and caches to measure with: random, and many times the last-level cache in all (E-HELM-30)."""

from math import ceil

import numpy as np

from helmsman.executor._kernels import Arena, Buffer
from helmsman.executor.devices.memory import view

ROTATION = 6
"""Buffers of one size are together this many times the last-level cache."""
LARGEST = 768 << 20
"""A cache so large that this would not cover it is covered this far."""
_BANK = 1 << 20


def rotation(size: int, cache_bytes: int) -> list[Buffer]:
    """Buffers of `size` bytes, together well beyond the cache, filled with normal f16 values.

    The same bits are moderate numbers as bf16 and f32, too: no zeros, denormals, infinities or NaN."""
    total = min(ROTATION * cache_bytes, LARGEST)
    count = max(2, ceil(total / size))
    arena = Arena(count * (size + 4096))
    bank = _bank()
    buffers = [arena.alloc(size, "profile") for _ in range(count)]
    for index, buffer in enumerate(buffers):
        view(buffer, np.float16)[:] = np.resize(np.roll(bank, 977 * index), size // 2)
    return buffers


def _bank() -> np.ndarray[tuple[int], np.dtype[np.float16]]:
    rng = np.random.default_rng(11)
    magnitude = rng.uniform(0.5, 2.0, _BANK)
    return np.asarray(np.where(rng.integers(0, 2, _BANK) == 1, magnitude, -magnitude), np.float16)
