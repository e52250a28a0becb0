"""Where each device does a batch's share of a pass: its stage, and the buffers that meet others there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from helmsman.executor._kernels import Buffer as HostBuffer
from helmsman.executor.cache.kv import Caches
from helmsman.executor.devices.memory import view
from helmsman.executor.devices.opening import Devices
from helmsman.executor.devices.parts import Buffer, Stage
from helmsman.executor.devices.specs import UniformSpec
from helmsman.executor.devices.value_sizes import F32_BYTES
from helmsman.executor.homes.staging import Staging, longest
from helmsman.executor.homes.store import WeightLoader
from helmsman.executor.passes.phase_pass import PhasePass
from helmsman.executor.routing.record import RoutingRecord
from helmsman.executor.routing.slot_room import SlotRooms
from helmsman.executor.stages.layer_inputs import LayerInputRows
from helmsman.executor.stages.stage import StageBuilder, divides, layers_of
from helmsman.lowering.activations import TOKEN_BYTES
from helmsman.lowering.buffers import chunk_of
from helmsman.lowering.cargo import rows_word
from helmsman.lowering.emit import task_name
from helmsman.lowering.graph import Task
from helmsman.lowering.placement import batches_together
from helmsman.lowering.streams import tokens_home
from helmsman.schemas.plan import Plan

Place = tuple[str, int]
"""A device and a batch."""


@dataclass(frozen=True)
class Seat:
    """`hidden`: the hidden states of prompts that pass chunk by chunk; else they stay in the workspace.

    `first_layer`: the stage's first block; `tokens`: what the embedding reads; `chosen`: where the choice goes;
    `layer_inputs`: what layers read of every token beside hidden states, where a model has that."""

    stage: Stage
    workspace: Buffer
    hidden: Buffer | None
    tokens: HostBuffer
    chosen: Buffer
    first_layer: int
    layer_inputs: Buffer | None = None

    def hidden_states(self, batch: int, tokens: int, hidden: int) -> NDArray[np.float32]:
        """Return a copy of the hidden states f32 (batch, tokens, hidden) behind the last block of the latest pass."""
        if self.hidden is not None:
            return view(self.hidden, np.float32)[: batch * tokens * hidden].reshape(batch, tokens, hidden).copy()
        return hidden_rows(self.stage, self.workspace, batch * tokens).reshape(batch, tokens, hidden)

    def ops_of(self, task: Task) -> tuple[int, int]:
        """Return the stage's operations [first, last) that are a task: a part of experts may have one of its own."""
        word = task_name(task.layer, rows_word(task.operation, task.rows))
        if word in self.stage.ops:
            first = self.stage.ops.index(word)
            return first, first + 1
        return self.ops(task.layer, task.op)

    def ops(self, layer: int | None, op: str) -> tuple[int, int]:
        """The stage's operations [first, last) that are `op` of a block; attention may be three."""
        names = self.stage.ops
        prefix = "" if layer is None else f"{layer}."
        if f"{prefix}{op}" in names:
            first = names.index(f"{prefix}{op}")
            return first, first + 1
        return names.index(f"{prefix}scores"), names.index(f"{prefix}wv") + 1


def hidden_rows(stage: Stage, workspace: Buffer, rows: int) -> NDArray[np.float32]:
    """Return a copy of the first hidden states f32 (rows, hidden) in the workspace of a native stage."""
    region = stage.regions()["hidden"]
    shape, strides = (rows, region["row_bytes"] // F32_BYTES), (region["stride"], F32_BYTES)
    values = view(workspace, np.float32)[region["offset"] // F32_BYTES :]
    return np.lib.stride_tricks.as_strided(values, shape, strides).copy()


Seats = Mapping[Place, Seat]


def take_seats(
    plan: Plan,
    passes: Sequence[PhasePass],
    stagings: Sequence[Staging],
    devices: Devices,
    store: WeightLoader,
    caches: Caches,
    max_tokens: int,
    routing: RoutingRecord | None = None,
    slots: SlotRooms | None = None,
) -> Sequence[Seats]:
    """The seats of every pass; passes share workspaces, as they follow each other. `routing`: where routers record what
    they choose; `slots`: for experts."""
    most = max(longest(one_pass, max_tokens) for one_pass in passes)
    inputs = LayerInputRows.of(plan.model, plan.workload.batch * most)
    builder = StageBuilder(
        plan, store, caches, divides(tuple(passes)), routing=routing, slots=slots, layer_inputs=inputs
    )
    batches = range(batches_together(plan))
    specs = [
        {
            (name, batch): builder.spec(one_pass, staging, devices.by_name[name], batch, longest(one_pass, max_tokens))
            for name in one_pass.devices
            for batch in batches
        }
        for one_pass, staging in zip(passes, stagings, strict=True)
    ]
    work = _workspaces(specs, devices)
    batch = plan.workload.batch
    buffers = _Buffers(plan, passes, devices, batch * most, most > chunk_of(plan), inputs)
    return [
        {
            at: buffers.seat(one_pass, _stage(one_pass, spec, devices, at, work[at]), work[at], at)
            for at, spec in by_place.items()
        }
        for one_pass, by_place in zip(passes, specs, strict=True)
    ]


def _workspaces(specs: Sequence[Mapping[Place, UniformSpec]], devices: Devices) -> dict[Place, Buffer]:
    """Scratch that is enough in every pass."""
    sizes: dict[Place, int] = {}
    for by_place in specs:
        for place, spec in by_place.items():
            sizes[place] = max(sizes.get(place, 0), devices.by_name[place[0]].workspace_size(spec))
    return {place: devices.by_name[place[0]].memory.alloc(size, "workspace") for place, size in sizes.items()}


def _stage(phase_pass: PhasePass, spec: UniformSpec, devices: Devices, place: Place, workspace: Buffer) -> Stage:
    uses = {(use.op, use.layer): use for use in phase_pass.uses.values() if use.device == place[0]}
    return devices.by_name[place[0]].stage(spec, workspace, layers_of(uses).start)


class _Buffers:
    """The buffers that stages read and write beside their workspaces."""

    def __init__(
        self,
        plan: Plan,
        passes: Sequence[PhasePass],
        devices: Devices,
        rows: int,
        chunked: bool,
        inputs: LayerInputRows | None,
    ) -> None:
        self._devices, self._inputs = devices, inputs
        self._hidden: dict[Place, Buffer] = {}
        self._chosen: dict[Place, Buffer] = {}
        self._size = F32_BYTES * plan.model.hidden * rows if chunked else 0
        self._choice = TOKEN_BYTES * plan.workload.batch * max(one_pass.step_tokens for one_pass in passes)
        home = devices.memories[tokens_home(plan, passes[-1].phase)]
        self._home = home
        batches = range(batches_together(plan))
        self._tokens = [home.share(TOKEN_BYTES * rows, "tokens") for _ in batches]

    def seat(self, phase_pass: PhasePass, stage: Stage, workspace: Buffer, place: Place) -> Seat:
        memory = self._devices.by_name[place[0]].memory
        tokens = self._tokens[place[1]]
        hidden = None
        if self._size and phase_pass.phase == "prefill":
            if place not in self._hidden:
                self._hidden[place] = memory.alloc(self._size, "hidden states")
            hidden = self._hidden[place]
        chosen: Buffer = tokens
        if memory is not self._home and phase_pass.device_of("head") == place[0]:
            if place not in self._chosen:
                self._chosen[place] = memory.alloc(self._choice, "chosen tokens")
            chosen = self._chosen[place]
        layers = [use.layer for use in phase_pass.uses.values() if use.device == place[0] and use.layer is not None]
        inputs = None if self._inputs is None else self._inputs.at(memory, place[1])
        return Seat(stage, workspace, hidden, tokens, chosen, min(layers, default=0), inputs)
