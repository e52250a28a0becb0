"""A cache that grows as tokens come, the plain alternative to one that is allocated in full (HELM-68, 91): an ablation.

Whenever a pass does not fit, caches with room for `GROWTH` tokens more are allocated, what is cached is copied, and the
old ones are freed: for a moment both are there. All that was made for the old ones, buffers and submissions, is made
anew."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from helmsman.executor.cache.kv import Caches, Heads
from helmsman.executor.devices.base import DeviceMemory
from helmsman.executor.devices.cpu import CpuDevice
from helmsman.executor.devices.memory import BoundedMemory, Ram, view
from helmsman.executor.devices.opening import Devices
from helmsman.executor.homes.storage import Storage
from helmsman.executor.homes.store import WeightLoader
from helmsman.executor.passes.phase_pass import PhasePass, passes_of
from helmsman.executor.programs.loading import LoadedPlan, prepare
from helmsman.executor.stages.stage import divides
from helmsman.lowering.caches import BOTH, pieces_of, turned
from helmsman.schemas.errors import UsageError
from helmsman.schemas.plan import Plan

GROWTH = 256
"""Tokens by which caches grow."""


def check_grows(plan: Plan, passes: tuple[PhasePass, PhasePass], devices: Devices) -> None:
    """Raise UsageError for a plan whose caches are not kept, whole, as attention of processors reads them."""
    pieces = [piece for layer in range(plan.model.layers) for piece in pieces_of(plan, layer)]
    apart = any(turned(plan, piece) or piece.rule.cache is not None for piece in pieces)
    if apart or divides(passes) or devices.accelerators.devices:
        remedy = "leave `kv_cache` out, or plan without windows, 4-bit groups, divided attention and GPUs"
        raise UsageError("these caches do not grow", field="kv_cache", value="growing", remedy=remedy)


@dataclass
class GrowingCaches:
    """Caches of `capacity` tokens; `first`: those with which a request begins. The weights stay where they are."""

    plan: Plan
    devices: Devices
    storage: Storage
    store: WeightLoader
    max_tokens: int
    first: int
    base: Mapping[str, DeviceMemory]
    capacity: int = field(init=False)

    def __post_init__(self) -> None:
        self.capacity = self.first

    def suits(self, past: int, context: int) -> bool:
        """Whether a pass to `context` on top of `past` can run with what there is."""
        return self.capacity == self.first if past == 0 and context <= self.first else context <= self.capacity

    def grown(self, old: LoadedPlan, past: int, context: int) -> LoadedPlan:
        """Load the plan for passes up to `context`, and copy the `past` tokens."""
        capacity = rounded(self.plan, context) if past else self.first
        ram = Ram(max(0, self.devices.ram.capacity - sum(map(self._used, self.base))))
        memories = {name: self._room(name, ram) for name in self.base}
        for device in self.devices.by_name.values():
            assert isinstance(device, CpuDevice), "caches of others do not grow"
            device.memory = memories[device.memory.name]
        self.devices = replace(self.devices, memories={**memories})
        assert old.kept is not None
        (caches, lanes), plan = old.kept, with_context(self.plan, capacity)
        new = prepare(plan, passes_of(plan), self.devices, self.storage, self.store, self.max_tokens, lanes)
        assert new.kept is not None
        _copy(caches, new.kept[0], (self.plan.workload.batch, self.capacity, capacity), past)
        for target, source in zip(new.tokens, old.tokens, strict=True):
            target[:] = source
        self.capacity = capacity
        return new

    def _room(self, name: str, ram: Ram) -> BoundedMemory:
        """A memory for all but weights, in RAM as in itself what these and the caches before leave."""
        record = self.plan.hardware.memory(name)
        return BoundedMemory(record, max(0, self.base[name].capacity - self._used(name)), ram)

    def _used(self, name: str) -> int:
        """Bytes of weights, and of the caches before, in a memory."""
        base, now = self.base[name], self.devices.memories[name]
        return base.used + (now.used if now is not base else 0)


def rounded(plan: Plan, tokens: int) -> int:
    """Tokens for which there is room when there must be for `tokens`."""
    return min(plan.workload.context, -(-tokens // GROWTH) * GROWTH)


def with_context(plan: Plan, context: int) -> Plan:
    """A plan of the same, for shorter caches."""
    return plan.model_copy(update={"workload": plan.workload.model_copy(update={"context": context})})


def _copy(old: Caches, new: Caches, shape: tuple[int, int, int], past: int) -> None:
    """Copy states, and rows of `past` tokens; `shape`: sequences, tokens for which there was room, and is."""
    batch, before, after = shape
    for name, state in old.states.items():
        view(new.states[name], np.uint8)[:] = view(state, np.uint8)
    for key, cache in old.by_layer.items():
        if cache.passing is None:
            for what in BOTH:
                for source, target in zip(cache.read[what], new.by_layer[key].read[what], strict=True):
                    _rows(target, batch, after)[:, :, :past] = _rows(source, batch, before)[:, :, :past]


def _rows(heads: Heads, batch: int, capacity: int) -> NDArray[np.uint8]:
    return view(heads.buffer, np.uint8).reshape(batch, len(heads.room), capacity, -1)
