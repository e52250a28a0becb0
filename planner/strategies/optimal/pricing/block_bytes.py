"""The bytes of a block in every way: what it keeps in which memory, and what is on its way for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from helmsman.lowering.tensors import block_tensors
from helmsman.planner.memory.cache_bytes import kv_block_bytes
from helmsman.planner.memory.page_locking import page_locks, pinned_extra
from helmsman.planner.strategies.optimal.configurations.block_ways import BlockWay
from helmsman.planner.strategies.optimal.pricing.chains import OPS
from helmsman.planner.strategies.optimal.program.ways import Numbers
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.scheduler.iteration import PHASES, Phase
from helmsman.schemas.formats import KeptFormat, StoredFormat
from helmsman.schemas.storage import BLOCK
from helmsman.schemas.workload import Workload


@dataclass(frozen=True, eq=False)
class BlockBytes:
    """The bytes of each of the `ways`. By way and operation, of its weights: which share is `used` by the accelerator,
    is `resident` there, comes (`brought`, by phase), is `stored` (0 or 1), and whether the accelerator's are `packed`
    in 4-bit groups."""

    frame: Frame
    ways: tuple[BlockWay, ...]
    used: Numbers
    resident: Numbers
    stored: Numbers
    packed: Numbers
    brought: Mapping[Phase, Numbers]

    @cached_property
    def _bytes(self) -> Numbers:
        """Return the bytes of the matrix of every operation."""
        return self._sizes(self.frame.weights)

    @cached_property
    def _packed_bytes(self) -> Numbers:
        """Return the bytes of the matrix of every operation in 4-bit groups."""
        return self._sizes("q4")

    def _sizes(self, fmt: StoredFormat) -> Numbers:
        sizes = dict.fromkeys(OPS, 0)
        for tensor in block_tensors(self.frame.model, 0):
            if len(tensor.shape) > 1:
                sizes[tensor.op] += tensor.size(fmt)
        return np.array([float(sizes[op]) for op in OPS])

    @cached_property
    def _saved(self) -> Numbers:
        """Bytes of every matrix that 4-bit groups save where the accelerator has all of it (ways, operations)."""
        return self.packed * (self._bytes - self._packed_bytes)

    @cached_property
    def _vectors(self) -> int:
        tensors = block_tensors(self.frame.model, 0)
        return sum(tensor.size(self.frame.weights) for tensor in tensors if len(tensor.shape) == 1)

    @cached_property
    def kept(self) -> Numbers:
        """Bytes (ways, memories): of the host, then of the accelerator and of storage; of both together where they
        share one."""
        bytes_ = self._bytes - self._saved
        away, stored = (self.resident * bytes_).sum(axis=1), (self.stored * bytes_).sum(axis=1)
        coming = (self.used - self.resident - self.stored) * self._saved
        total = float(self._bytes.sum()) - (self.resident + self.stored) @ self._bytes - coming.sum(axis=1)
        at_home = np.array([way.cache == "host" for way in self.ways])
        locked = np.array([way.cache_comes for way in self.ways]) & page_locks(self.frame.roles.hardware)
        cache, extra = self._caches(self.frame.workload)
        host, accelerator = total + at_home * cache + locked * extra, away + ~at_home * cache
        if not self.frame.roles.separate:  # one copy of norms and biases, whoever reads them
            return np.asarray((host + accelerator + self._vectors)[:, None])
        host += np.array([not way.whole or not way.needs_vectors_away for way in self.ways]) * self._vectors
        accelerator += np.array([way.needs_vectors_away for way in self.ways]) * self._vectors
        copies = len(self.frame.store.memories) if self.frame.store else 0
        return np.stack([host, accelerator, *[stored] * copies], axis=1)

    def _caches(self, work: Workload) -> tuple[Numbers, Numbers]:
        """Bytes (ways) of keys and values, and what they take more where they are page-locked."""
        formats: list[KeptFormat] = ["q4" if "cache" in way.q4 else self.frame.kv for way in self.ways]
        sizes = {fmt: float(kv_block_bytes(self.frame.model, work, fmt)) for fmt in set(formats)}
        extras = {fmt: 2.0 * pinned_extra(work, self.frame.model.dense.kv_width, fmt) for fmt in set(formats)}
        return np.array([sizes[fmt] for fmt in formats]), np.array([extras[fmt] for fmt in formats])

    @cached_property
    def coming(self) -> Numbers:
        """Bytes on their way for a block (ways, flows): weights, then keys and values of one batch; then the largest
        matrix that comes from storage, where that stops in host memory."""
        one = self.frame.workload.model_copy(update={"batches": 1})
        cache = float(kv_block_bytes(self.frame.model, one, self.frame.kv))
        weights = np.maximum(*(self._arriving(phase).sum(axis=1) for phase in PHASES))
        made = np.array([way.cache == "host" and way.prompt != "alike" for way in self.ways])
        used = np.array([way.cache_comes for way in self.ways])
        if not self.frame.roles.separate:
            return np.zeros((len(self.ways), 2))
        store = self.frame.store
        stopping = self.stored * (self._bytes - self._saved + BLOCK)
        stops = [stopping.max(axis=1)] if store is not None and store.bounces else []
        groups = np.array(["cache" in way.q4 for way in self.ways]) * self._caches(one)[0]
        return np.stack([weights, (made | used) * cache + groups, *stops], axis=1)

    def _arriving(self, phase: Phase) -> Numbers:
        """Bytes of weights on their way (ways, operations): as they are used, and 4-bit groups that come as such."""
        brought = self.brought[phase]
        groups = brought * self.packed * self._packed_bytes
        return np.asarray((brought + self.resident * self.packed) * self._bytes + groups)
