"""A cache of blocks in one memory: every layer's keys and values of all requests, allocated once."""

from collections.abc import Sequence
from dataclasses import dataclass
from mmap import PAGESIZE

import numpy as np

from helmsman.executor._kernels import Buffer as HostBuffer
from helmsman.executor.devices.base import DeviceMemory
from helmsman.executor.devices.iterations import LayerSide
from helmsman.executor.devices.memory import view
from helmsman.executor.devices.parts import Buffer
from helmsman.executor.serving.blocks import Run
from helmsman.lowering.common_attention import common_cache
from helmsman.schemas.formats import KvFormat, rows_size
from helmsman.schemas.model import Model

Pieces = list[tuple[int, int, int]]
"""Of one layer: target offset, source offset, bytes."""


@dataclass(frozen=True)
class BlockCache:
    """(layers, sides, kv_heads, rows, row): keys, then values of a layer, or of latent attention one side that is both;
    a head's rows follow each other, so that blocks next to each other are one run. `layers` may be fewer than the
    model's, which then take turns."""

    buffer: Buffer
    layers: int
    heads: int
    rows: int
    row: int
    sides: int = 2

    @property
    def stride(self) -> int:
        """Bytes of a layer."""
        return self.sides * self.heads * self.rows * self.row

    @property
    def side(self) -> LayerSide:
        """As copies of every layer see it."""
        return self.buffer, self.stride, self.layers

    def parts(self, layer: int) -> tuple[Buffer, Buffer]:
        """Keys and values of a layer."""
        at, size = layer % self.layers * self.stride, self.stride // self.sides
        return self.buffer.part(at, size), self.buffer.part(at + (self.sides - 1) * size, size)

    def offsets(self, row: int) -> list[int]:
        """Where a row of every head's keys, then values is in a layer, in bytes."""
        return [(head * self.rows + row) * self.row for head in range(self.sides * self.heads)]


def allocate(memory: DeviceMemory, model: Model, layers: int, rows: int, fmt: KvFormat, what: str) -> BlockCache:
    """A cache with room for `rows` tokens. Its pages are there: every head's rows begin in a huge page of their own,
    and clearing these took a second of the first pass. Raises InfeasibleError when it does not fit the memory."""
    cache = common_cache(model)
    row, sides = rows_size(1, cache.key_dim, fmt), 1 + (cache.value_dim > 0)
    buffer = memory.alloc(layers * sides * cache.heads * rows * row, what)
    if isinstance(buffer, HostBuffer):  # what PyTorch allocates is not paged
        view(buffer, np.uint8)[::PAGESIZE] = 0
    return BlockCache(buffer, layers, cache.heads, rows, row, sides)


def pieces(source: BlockCache, source_runs: Sequence[Run], target: BlockCache, target_runs: Sequence[Run]) -> Pieces:
    """Copies of the same positions from one cache to another, where runs may be cut elsewhere."""
    result: Pieces = []
    for count, source_row, target_row in _common(list(source_runs), list(target_runs)):
        ends = zip(target.offsets(target_row), source.offsets(source_row), strict=True)
        result += [(to, from_, count * source.row) for to, from_ in ends]
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
