"""Which splits fit: the bytes of every candidate of the search at once, as `memory_use` counts them one by one.

What a split changes is a sum, or a maximum, over operations: each has a table over the ranges [a, b) of its chunks.
So the bytes of thousands of candidates are a few look-ups per operation."""

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Literal

import numpy as np

from helmsman.lowering.buffers import (
    buffer_bytes,
    cache_expansion_bytes,
    chunk_tokens,
    held_together,
    kept_bytes,
    model_expansion_bytes,
)
from helmsman.planner.memory.buffers import STOPS
from helmsman.planner.memory.cache_bytes import kv_block_bytes
from helmsman.planner.memory.devices_used import devices_used
from helmsman.planner.memory.usage import memory_use
from helmsman.planner.strategies.op_split.op_bytes import CACHES, ChunkedOperation, OpBytes
from helmsman.planner.strategies.op_split.options import Mask
from helmsman.planner.strategies.op_split.pipeline import Indices
from helmsman.planner.strategies.streaming.place import Frame, Layout, place
from helmsman.schemas.formats import is_plain

Ends = Literal["host", "accelerator"]
ENDS: tuple[Ends, ...] = ("host", "accelerator")


@dataclass(frozen=True, eq=False)
class _Blocks:
    """Bytes by memory and range, the ends of the model left out; and those of the host's memory if the host works."""

    used: dict[str, Indices]
    working: Indices


@dataclass(frozen=True)
class SplitRoom:
    """Bytes of the splits of `frame` into the units of `layout`, which says how a compressed split is compressed, and
    how what is stored comes from storage."""

    frame: Frame
    layout: Layout

    def fits(self, start: Indices, stop: Indices, compressed: bool, stored: tuple[str, ...]) -> Mask:
        """Which ranges fit with the ends of the model on one of the two sides."""
        return np.asarray(self.shortage(start, stop, compressed, stored) == 0)

    def shortage(self, start: Indices, stop: Indices, compressed: bool, stored: tuple[str, ...]) -> Indices:
        """Bytes missing in all memories by range, with the ends where less is missing."""
        blocks = self._blocks(start, stop, compressed, stored)
        host, accelerator = (self._lacking(self._with_ends(blocks, start, stop, ends)) for ends in ENDS)
        return np.asarray(np.minimum(host, accelerator))

    def _lacking(self, used: dict[str, Indices]) -> Indices:
        available = {memory.name: memory.available for memory in self.frame.roles.hardware.memories}
        lacking = [np.maximum(0, size - available[memory]) for memory, size in used.items()]
        return np.asarray(np.sum(lacking, axis=0), dtype=np.int64)

    def used(
        self, start: Indices, stop: Indices, compressed: bool, stored: tuple[str, ...], ends: Ends
    ) -> dict[str, Indices]:
        """Bytes by memory and range [start, stop)."""
        return self._with_ends(self._blocks(start, stop, compressed, stored), start, stop, ends)

    def _with_ends(self, blocks: "_Blocks", start: Indices, stop: Indices, ends: Ends) -> dict[str, Indices]:
        """Bytes by memory with the ends of the model on one of the two sides."""
        used = {memory: self._kept[ends][memory] + size for memory, size in blocks.used.items()}
        works = self._host_works(start, stop, ends)
        used[self.frame.roles.host.memory] += np.where(works, blocks.working, self._resting)
        return used

    def _blocks(self, start: Indices, stop: Indices, compressed: bool, stored: tuple[str, ...]) -> "_Blocks":
        host, accelerator = self.frame.roles.host.memory, self.frame.accelerator.memory
        op_bytes = [(self._ops[op, compressed, op in stored], *self._chunks(op, start, stop)) for op in self._first]
        used = {memory: np.zeros(len(start), dtype=np.int64) for memory in self._kept["host"]}
        for sizes, a, b in op_bytes:
            used[host] += sizes.host[a, b]
            used[accelerator] += sizes.accelerator[a, b]
            for memory in self.layout.storage:
                used[memory] += sizes.storage[a, b]
        for memory in {sizes.stops_in for sizes, _, _ in op_bytes if sizes.stops_in is not None}:
            stops = [sizes.stop[a, b] for sizes, a, b in op_bytes if sizes.stops_in == memory]
            used[memory] += STOPS * np.max(stops, axis=0)
        used[accelerator] += self._buffers + self._values + self._depth * self._arriving(op_bytes)
        working = self._buffers + self._depth * self._host_caches(op_bytes, start, stop, compressed)
        return _Blocks(used, np.asarray(working))

    def _arriving(self, op_bytes: list[tuple[OpBytes, Indices, Indices]]) -> Indices:
        """Bytes of a layer that the accelerator holds while it passes: all of it comes for prompts."""
        weights = [sizes.weights[a, b] for sizes, a, b in op_bytes]
        work = self.frame.workload
        chunk = chunk_tokens(work.batch, self.frame.form == "divided")
        held = held_together(self.frame.overlap == "next-layer", work.batches, work.new_tokens, chunk)
        together = np.sum if held else np.max
        caches = np.sum([sizes.caches[a, b] for sizes, a, b in op_bytes], axis=0)
        return np.asarray(together(weights, axis=0) + caches + self._block_cache)

    def _host_caches(
        self, op_bytes: list[tuple[OpBytes, Indices, Indices]], start: Indices, stop: Indices, compressed: bool
    ) -> Indices:
        """Bytes of a layer's caches that the host turns or expands: to attend to them, or to append to them."""
        last, count = self._first["v"] + self._count["v"] - 1, len(start)
        appends = ~((start <= last) & (last < stop))
        some, whole = np.zeros(count, dtype=np.bool_), np.ones(count, dtype=np.bool_)
        for op in CACHES.keys() & self._first.keys():
            a, b = self._chunks(op, start, stop)
            some |= a < b
            whole &= (a == 0) & (b == self._count[op])
        turned = appends | ~whole if self.frame.reshape else appends & some & (compressed and self.layout.cache_q4)
        unpacked = np.sum([sizes.unpacked[a, b] for sizes, a, b in op_bytes], axis=0)
        return np.asarray(turned * self._block_cache + appends * unpacked)

    def _host_works(self, start: Indices, stop: Indices, ends: Ends) -> Mask:
        """Whether the host computes anything."""
        return self._always[ends] | (start > 0) | (stop < len(self.layout.units))

    def _chunks(self, op: str, start: Indices, stop: Indices) -> tuple[Indices, Indices]:
        first, count = self._first[op], self._count[op]
        return np.clip(start - first, 0, count), np.clip(stop - first, 0, count)

    @cached_property
    def _ops(self) -> dict[tuple[str, bool, bool], OpBytes]:
        """The tables of every operation, compressed or not, stored or not."""
        configurations = product(self._first, (False, True), (False, True))
        return {
            configuration: ChunkedOperation(self.frame, self.layout, *configuration).bytes
            for configuration in configurations
        }

    @cached_property
    def _always(self) -> dict[Ends, bool]:
        """Whether the host computes something even if every unit is streamed."""
        one = replace(self.frame, model=self.frame.model.with_layers(1))
        layouts = {ends: Layout(self.layout.units, 0, len(self.layout.units), ends=ends) for ends in ENDS}
        return {ends: self.frame.roles.host.name in devices_used(place(one, layouts[ends])) for ends in ENDS}

    @cached_property
    def _first(self) -> dict[str, int]:
        ops = [unit.op for unit in self.layout.units]
        return {op: ops.index(op) for op in ops}

    @cached_property
    def _count(self) -> dict[str, int]:
        ops = [unit.op for unit in self.layout.units]
        return {op: ops.count(op) for op in ops}

    @cached_property
    def _kept(self) -> dict[Ends, dict[str, int]]:
        """Weights and caches by memory when nothing is streamed."""
        uses = {ends: memory_use(place(self.frame, Layout(self.layout.units, 0, 0, ends=ends))) for ends in ENDS}
        return {ends: {use.memory: use.weights + use.kv + use.pinned for use in uses[ends]} for ends in ENDS}

    @cached_property
    def _buffers(self) -> int:
        frame = self.frame
        divided, together = frame.form == "divided", frame.workload.batches
        return buffer_bytes(frame.model, frame.workload, divided=divided, batches=together)

    @cached_property
    def _values(self) -> int:
        """Values of weights and caches that the accelerator keeps quantised until it reads them."""
        frame = self.frame
        if not frame.accelerator.expands:
            return 0
        weights = 0 if is_plain(frame.weights) else frame.workload.batches * model_expansion_bytes(frame.model)
        return weights + (0 if is_plain(frame.kv) else cache_expansion_bytes(frame.model, frame.workload))

    @cached_property
    def _resting(self) -> int:
        """Return what the host's memory holds beside weights and caches when the host computes nothing."""
        return kept_bytes(self.frame.model, self.frame.workload)

    @property
    def _depth(self) -> int:
        return 1 + (self.frame.prefetch if self.frame.overlap == "next-layer" else 0)

    @cached_property
    def _block_cache(self) -> int:
        """A block's keys and values of one batch as attention reads them."""
        one = self.frame.workload.model_copy(update={"batches": 1})
        return kv_block_bytes(self.frame.model, one, self.frame.kv)
