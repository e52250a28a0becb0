"""Bytes that one operation adds to memories where some of its chunks are streamed, for every range of its chunks."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from helmsman.lowering.tensors import linears
from helmsman.lowering.variants import cached_elements
from helmsman.planner.memory.cache_bytes import kv_block_bytes
from helmsman.planner.memory.page_locking import page_locks, pinned_extra
from helmsman.planner.memory.partial_keys import partial_keys
from helmsman.planner.strategies.op_split.pipeline import Indices
from helmsman.planner.strategies.streaming.division import DivisionPiece
from helmsman.planner.strategies.streaming.place import Frame, Layout, place
from helmsman.schemas.formats import KeptFormat, StoredFormat, rows_size, size_of
from helmsman.schemas.plan import Path
from helmsman.schemas.storage import BLOCK
from helmsman.schemas.workload import Workload

CACHES = {"scores": 1, "wv": 1, "attention": 2}
"""Operations that read caches: keys, values, or both."""


@dataclass(frozen=True, slots=True, eq=False)
class OpBytes:
    """The bytes that an operation takes where [a, b) of its chunks are streamed; arrays over (a, b), bytes.

    `host`, `accelerator`, `storage`: kept there (in each of the storage memories), all layers, beyond what is kept
    when nothing is streamed; `weights`, `caches`: on the accelerator while a layer passes; `unpacked`: caches that
    the host expands to append to them; `stop`: one buffer where data stops on its way, in memory `stops_in`."""

    host: Indices
    accelerator: Indices
    storage: Indices
    weights: Indices
    caches: Indices
    unpacked: Indices
    stop: Indices
    stops_in: str | None


@dataclass(frozen=True)
class ChunkedOperation:
    """The chunks of operation `op` under one configuration; `layout` says how a compressed split is compressed, and
    how what is stored comes from storage."""

    frame: Frame
    layout: Layout
    op: str
    compressed: bool
    stored: bool

    @cached_property
    def bytes(self) -> OpBytes:
        """The tables of the operation."""
        path = self.layout.path if self.stored else self.layout.pinning
        return OpBytes(
            host=self._table(self._host),
            accelerator=self._table(self._accelerator),
            storage=self._table(self._storage),
            weights=self._table(self._weights),
            caches=self._table(self._caches),
            unpacked=self._table(self._unpacked),
            stop=self._table(self._stop),
            stops_in=self._stops_in(path) if self.op in CACHES or self._columns else None,
        )

    def _table(self, size: Callable[[int, int], int]) -> Indices:
        """`size` of rows or heads [first, last) for every a <= b; 0 elsewhere."""
        filled = [[size(a, b) if a <= b else 0 for b in self._edges] for a in self._edges]
        return np.array(filled, dtype=np.int64)

    def _host(self, first: int, last: int) -> int:
        layers = self.frame.model.layers
        if self.op in CACHES:
            workload = self.frame.workload
            there = sum(self._cache_size(n, fmt, workload) for n, fmt in self._parts(first, last))
            grown = there - self._cache_size(self._extent, self.frame.kv, workload)
            return layers * CACHES[self.op] * (grown + self._page_locking(last - first))
        rows = last - first
        return layers * ((0 if self.stored else self._size(rows, self._weight_format)) - self._size(rows))

    def _accelerator(self, first: int, last: int) -> int:
        """Keys that choose which tokens come (PARK-66)."""
        if self.op not in ("scores", "attention") or first == last or self.frame.cache.select == 0:
            return 0
        unit = next(k for k, unit in enumerate(self.layout.units) if unit.op == self.op)
        one = replace(self.frame, model=self.frame.model.with_layers(1))
        a, b = (unit + self._edges.index(edge) for edge in (first, last))
        placed = place(one, Layout(self.layout.units, a, b))
        return self.frame.model.layers * partial_keys(placed).get(self.frame.accelerator.memory, 0)

    def _storage(self, first: int, last: int) -> int:
        return self.frame.model.layers * self._size(last - first) if self.stored else 0

    def _weights(self, first: int, last: int) -> int:
        packed = self._weights_packed and not self.stored
        return self._size(self._extent) + (self._size(last - first, "q4") if packed else 0)

    def _caches(self, first: int, last: int) -> int:
        """Return what comes as it is kept and is turned or expanded there; what is expanded before it is turned."""
        if self.op not in CACHES:
            return 0
        reshape = self.frame.reshape
        parts = [(n, fmt) for n, fmt in self._parts(first, last) if reshape or fmt == "q4"]
        coming = sum(self._cache_size(n, fmt, self._one_batch) for n, fmt in parts)
        return CACHES[self.op] * coming + self._unpacked(first, last)

    def _unpacked(self, first: int, last: int) -> int:
        if self.op not in CACHES or not self.frame.reshape or self._cache_format != "q4":
            return 0
        return CACHES[self.op] * self._cache_size(last - first, self.frame.kv, self._one_batch)

    def _stop(self, first: int, last: int) -> int:
        if first == last:
            return 0
        if self.op in CACHES:
            return kv_block_bytes(self.frame.model, self._one_batch, self._cache_format) + 2 * BLOCK
        fmt = self.frame.weights if self.stored else self._weight_format
        return self._size(last - first, fmt) + BLOCK

    def _stops_in(self, path: Path) -> str | None:
        """Where data that comes by `path` stops."""
        where = {"pin-on-transfer": self.frame.roles.host.memory, "bounce": self.frame.roles.hardware.devices[0].memory}
        return where.get(path)

    def _page_locking(self, heads: int) -> int:
        """Return what page-locked keys, or values, of a layer take beyond their size."""
        frame = self.frame
        if not heads or self.layout.pinning != "pinned" or not page_locks(frame.roles.hardware):
            return 0
        width = cached_elements(frame.model, frame.cache, heads * frame.model.dense.head_dim)
        return pinned_extra(frame.workload, width, self._cache_format)

    def _parts(self, first: int, last: int) -> list[tuple[int, KeptFormat]]:
        """Heads before, in and behind the streamed ones, and how their caches are kept."""
        plain = self.frame.kv
        parts: tuple[tuple[int, KeptFormat], ...]
        parts = ((first, plain), (last - first, self._cache_format), (self._extent - last, plain))
        return [(heads, fmt) for heads, fmt in parts if heads]

    def _cache_size(self, heads: int, fmt: StoredFormat, workload: Workload) -> int:
        """Bytes of a block's keys, or values, of so many heads."""
        model = self.frame.model
        rows = workload.batch * workload.batches * workload.context * heads
        return rows_size(cached_elements(model, self.frame.cache, rows), model.dense.head_dim, fmt)

    def _size(self, rows: int, fmt: StoredFormat | None = None) -> int:
        return size_of(rows * self._columns, fmt or self.frame.weights)

    @cached_property
    def _chunks(self) -> tuple[DivisionPiece, ...]:
        return tuple(unit for unit in self.layout.units if unit.op == self.op)

    @cached_property
    def _edges(self) -> tuple[int, ...]:
        """The rows or heads at which chunks begin, and the end of the last; also of what may not be divided."""
        if len(self._chunks) == 1:
            return 0, self._extent
        return 0, *(piece.stop for piece in self._chunks)

    @cached_property
    def _linear(self) -> tuple[int, int]:
        """Rows and columns of the weight; none of an operation whose weights, if any, are on both sides."""
        shapes = ((rows, columns) for op, rows, columns, _ in linears(self.frame.model) if op == self.op)
        return next(shapes, (0, 0))

    @property
    def _columns(self) -> int:
        return self._linear[1]

    @property
    def _extent(self) -> int:
        """Rows of the weight, heads of the cache."""
        return self.frame.model.dense.kv_heads if self.op in CACHES else self._linear[0]

    @property
    def _weight_format(self) -> StoredFormat:
        return "q4" if self._weights_packed else self.frame.weights

    @property
    def _weights_packed(self) -> bool:
        """Whether what is streamed comes in 4-bit groups that are expanded there."""
        return self.compressed and self.layout.weights_q4

    @property
    def _cache_format(self) -> KeptFormat:
        return "q4" if self.compressed and self.layout.cache_q4 else self.frame.kv

    @cached_property
    def _one_batch(self) -> Workload:
        return self.frame.workload.model_copy(update={"batches": 1})
