"""A cache of blocks in one memory: every layer's keys and values of all requests, allocated once."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from mmap import PAGESIZE
from typing import NamedTuple

import numpy as np

from helmsman.executor._kernels import Buffer as HostBuffer
from helmsman.executor.devices.base import DeviceMemory
from helmsman.executor.devices.iterations import LayerSide
from helmsman.executor.devices.memory import view
from helmsman.executor.devices.parts import Buffer
from helmsman.executor.serving.blocks import Run
from helmsman.lowering.layer_cache import LayerCache
from helmsman.schemas.formats import KvFormat, rows_size

Pieces = list[tuple[int, int, int]]
"""Of one layer: target offset, source offset, bytes."""


class LayerRows(NamedTuple):
    """The keys and values of a token in one layer: `sides` times `heads` rows of `row` bytes. Latent attention has one
    side, that is both."""

    heads: int
    row: int
    sides: int = 2

    @classmethod
    def of(cls, cache: LayerCache, fmt: KvFormat) -> "LayerRows":
        """Return those of what a layer caches."""
        return cls(cache.heads, rows_size(1, cache.key_dim, fmt), 1 + (cache.value_dim > 0))

    @property
    def size(self) -> int:
        """Bytes of a token."""
        return self.sides * self.heads * self.row


@dataclass(frozen=True)
class BlockCache:
    """Layer by layer (sides, kv_heads, rows, row): keys, then values; a head's rows follow each other, so that blocks
    next to each other are one run. `layers` may be fewer than the model's, which then take turns."""

    buffer: Buffer
    layers: tuple[LayerRows, ...]
    rows: int

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        """Where layers begin, in bytes."""
        return (0, *accumulate(self.rows * layer.size for layer in self.layers))

    @property
    def alike(self) -> LayerRows:
        """Return the rows of every layer, where they are all the same: those between which copies go."""
        first, *others = self.layers
        assert all(other == first for other in others), "a host attends beside layers that are alike"
        return first

    @property
    def side(self) -> LayerSide:
        """As copies of every layer see it."""
        return self.buffer, self.rows * self.alike.size, len(self.layers)

    def parts(self, layer: int) -> tuple[Buffer, Buffer]:
        """Keys and values of a layer."""
        number = layer % len(self.layers)
        at, sides = self._starts[number], self.layers[number].sides
        size = self.rows * self.layers[number].size // sides
        return self.buffer.part(at, size), self.buffer.part(at + (sides - 1) * size, size)

    def offsets(self, row: int) -> list[int]:
        """Where a row of every head's keys, then values is in a layer, in bytes."""
        layer = self.alike
        return [(head * self.rows + row) * layer.row for head in range(layer.sides * layer.heads)]


def allocate(memory: DeviceMemory, caches: Sequence[LayerCache], rows: int, fmt: KvFormat, what: str) -> BlockCache:
    """A cache of layers with room for `rows` tokens. Its pages are there: every head's rows begin in a huge page of
    their own, and clearing these took a second of the first pass. Raises InfeasibleError when it does not fit the
    memory."""
    layers = tuple(LayerRows.of(cache, fmt) for cache in caches)
    buffer = memory.alloc(rows * sum(layer.size for layer in layers), what)
    if isinstance(buffer, HostBuffer):  # what PyTorch allocates is not paged
        view(buffer, np.uint8)[::PAGESIZE] = 0
    return BlockCache(buffer, layers, rows)


def pieces(source: BlockCache, source_runs: Sequence[Run], target: BlockCache, target_runs: Sequence[Run]) -> Pieces:
    """Copies of the same positions from one cache to another, where runs may be cut elsewhere."""
    result: Pieces = []
    for count, source_row, target_row in _common(list(source_runs), list(target_runs)):
        ends = zip(target.offsets(target_row), source.offsets(source_row), strict=True)
        result += [(to, from_, count * source.alike.row) for to, from_ in ends]
    return result


def _common(one: Sequence[Run], other: Sequence[Run]) -> list[tuple[int, int, int]]:
    """(count, row of one, row of the other) of positions that are together in both."""
    result, i, j = [], 0, 0
    while i < len(one) and j < len(other):
        (a, n, row), (b, m, place) = one[i], other[j]
        begin, end = max(a, b), min(a + n, b + m)
        if begin < end:
            result.append((end - begin, row + begin - a, place + begin - b))
        i, j = i + (end == a + n), j + (end == b + m)
    return result


def as_array(pieces: Pieces) -> memoryview:
    """As native copies take them."""
    return np.array(pieces, np.int64).reshape(-1, 3).data
