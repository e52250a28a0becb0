"""Caches as if text were in them: measuring at a depth that a prompt would take minutes to reach.

What attention takes does not depend on what it reads, as long as it is no page of zeros that all lie in one place, and
no number that is slower than others."""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from helmsman.executor.cache.kv import Caches
from helmsman.executor.cache.pager import Pager
from helmsman.executor.devices.memory import view
from helmsman.executor.devices.parts import Buffer
from helmsman.lowering.caches import BOTH

_LOWEST_BYTE = 0x20
_HIGHEST_BYTE = 0x3C
"""Any bytes from the lowest to the highest are positive, normal numbers in every format of a cache."""
_PERIOD = 65521
"""Bytes after which noise repeats: a prime, so that no row is like another."""


def assume(caches: Caches, pagers: Mapping[str, Pager], tokens: int) -> None:
    """Fill all caches with noise, and have the pages of windows where they are after `tokens` tokens."""
    fill(_buffers(caches))
    for pager in pagers.values():
        pager.assume(tokens)


def fill(buffers: Iterable[Buffer]) -> None:
    """Noise everywhere."""
    noise = np.random.default_rng(0).integers(_LOWEST_BYTE, _HIGHEST_BYTE, _PERIOD, np.uint8)
    for buffer in buffers:
        view(buffer, np.uint8)[:] = np.resize(noise, buffer.size)


def _buffers(caches: Caches) -> Iterator[Buffer]:
    for cache in caches.by_layer.values():
        for parts in (cache.read, cache.kept):
            for what in BOTH:
                yield from (heads.buffer for heads in parts[what])
    for paged in caches.paged.values():
        yield from (block.home.buffer for block in paged.blocks.values())
