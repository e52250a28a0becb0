"""The memory of slots for experts: of every layer that has some, the matrices in slots and which expert is where."""

from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from helmsman.executor._kernels import Buffer as HostBuffer
from helmsman.executor._kernels import Event
from helmsman.executor.devices.base import DeviceMemory
from helmsman.executor.devices.memory import view
from helmsman.executor.devices.parts import Buffer
from helmsman.executor.devices.value_sizes import INDEX_BYTES
from helmsman.executor.homes.store import PackedRows, WeightLoader, place_of
from helmsman.lowering.bodies.experts import EXPERT_PRODUCTS, UP
from helmsman.lowering.routing import experts_of
from helmsman.lowering.rules import slots_of
from helmsman.lowering.tensor import Tensor
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.plan import ExpertSlots, Plan

ABSENT = -1
"""In tables of experts: in no slot."""

ALIGNMENT = 64
"""Bytes to whose multiples the matrices of slots are apart."""


@dataclass(frozen=True)
class SlotMatrices:
    """The slots of one operation: where an expert's matrix is at home, and where it is in every slot."""

    home: PackedRows
    slots: list[Buffer]

    @property
    def format(self) -> StoredFormat:
        """Return how matrices are packed, at home and in slots."""
        return self.home.format

    def source(self, expert: int) -> tuple[Buffer, int, int]:
        """Return the buffer, offset and bytes of an expert's matrix at home."""
        assert self.home.buffer is not None, "checked when slots were made"
        return self.home.buffer, *self.home.span(expert, expert + 1)


@dataclass(frozen=True)
class SlotRoom:
    """The slots of a layer: matrices by operation, spare ones last. Stages read `table`, int32 (experts + 1,), the slot
    of every expert that they compute, then whether their sum goes on, and `late`, int32 (experts,), not 0 for those
    that are there once `arrived` is signalled."""

    rule: ExpertSlots
    experts: int
    matrices: Mapping[str, SlotMatrices]
    table: HostBuffer
    late: HostBuffer
    arrived: Event = field(default_factory=Event)

    @cached_property
    def count(self) -> int:
        """Return how many slots there are, spare ones too."""
        return len(next(iter(self.matrices.values())).slots)

    @cached_property
    def expert_bytes(self) -> int:
        """Return bytes of all matrices of an expert."""
        return sum(matrices.source(0)[2] for matrices in self.matrices.values())

    def tables(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return `table` and `late` as arrays."""
        return view(self.table, np.int32)[: self.experts + 1], view(self.late, np.int32)[: self.experts]


class SlotRooms:
    """The slots of a plan's layers, allocated when they are asked for; passes share them. `fetching`: the layers to
    whose slots experts come before they are computed."""

    def __init__(
        self, plan: Plan, store: WeightLoader, memories: Mapping[str, DeviceMemory], fetching: Container[int]
    ) -> None:
        self._plan, self._store, self._memories, self._fetching = plan, store, memories, fetching
        self._spare: dict[tuple[str, str, int], list[Buffer]] = {}
        self.of_layer: dict[int, SlotRoom] = {}
        self._scratch: dict[str, Buffer] = {}

    def room(self, layer: int) -> SlotRoom:
        """Return the slots of a layer that has some."""
        if layer not in self.of_layer:
            rule = slots_of(self._plan.expert_slots, layer)
            assert rule is not None, "a layer with slots"
            self.of_layer[layer] = self._made(rule, layer)
        return self.of_layer[layer]

    def scratch(self, tokens: int, memory: str) -> Buffer:
        """Return where routers tell the home of experts what `tokens` of every sequence chose."""
        if memory not in self._scratch:
            ops = (experts_of(self._plan.model, layer) for layer in range(self._plan.model.layers))
            most = max((op.chosen for op in ops if op is not None), default=0)
            size = INDEX_BYTES * self._plan.workload.batch * tokens * most
            self._scratch[memory] = self._memories[memory].alloc(size, "chosen experts")
        return self._scratch[memory]

    def _made(self, rule: ExpertSlots, layer: int) -> SlotRoom:
        tensors = {name: self._store.find(f"{name}.weight", layer) for name in EXPERT_PRODUCTS}
        memory = self._memories[rule.memory]
        matrices = {
            name: self._matrices(rule, tensor, memory) for name, tensor in tensors.items() if tensor is not None
        }
        experts = self._store.tensor(f"{UP}.weight", layer).shape[0]
        table, late = (memory.share(INDEX_BYTES * (experts + 1), "slots of experts") for _ in range(2))
        view(table, np.int32)[:experts] = ABSENT
        return SlotRoom(rule, experts, matrices, table, late)

    def _matrices(self, rule: ExpertSlots, tensor: Tensor, memory: DeviceMemory) -> SlotMatrices:
        pieces = self._store.pieces(tensor)
        home = next(iter(pieces[0].copies.values()))
        if len(pieces) > 1 or home.buffer is None or pieces[0].rule.expands:
            raise UsageError(
                f"{place_of(tensor)} is not in one piece of host memory, from which its experts come to slots",
                field="residence",
                value=pieces[0].rule.memory,
                remedy="keep all experts of a layer with slots in host memory, in the format in which they are used",
            )
        size = home.span(0, 1)[1]
        apart = -(-size // ALIGNMENT) * ALIGNMENT
        buffer = memory.alloc(rule.slots * apart, f"slots of {place_of(tensor)}")
        own = [buffer.part(slot * apart, size) for slot in range(rule.slots)]
        return SlotMatrices(home, [*own, *self._spare_slots(rule, tensor, size)])

    def _spare_slots(self, rule: ExpertSlots, tensor: Tensor, size: int) -> list[Buffer]:
        """Return slots for experts that come beside pinned ones, as many as a token chooses: layers share them, as one
        computes after the other."""
        layer, key = tensor.layer or 0, (rule.memory, tensor.op, size)
        if rule.eviction != "popularity" or layer not in self._fetching:
            return []
        if key not in self._spare:
            experts = experts_of(self._plan.model, layer)
            assert experts is not None, "a layer with slots"
            memory = self._memories[rule.memory]
            self._spare[key] = [memory.alloc(size, "spare slots for experts") for _ in range(experts.chosen)]
        return self._spare[key]
