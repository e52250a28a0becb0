"""From the parts of a plan to the legs of a pass: buffers, stages with their weights, copies between them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from helmsman.executor._kernels import Buffer
from helmsman.executor.devices.base import Device, Lane, RunnableStage
from helmsman.executor.devices.memory import view
from helmsman.executor.devices.opening import Devices
from helmsman.executor.legs import CopyLeg, Leg, StageLeg
from helmsman.executor.partition import Part
from helmsman.executor.placing import Placer
from helmsman.executor.rope import rope_tables
from helmsman.executor.stage import StageBuilder
from helmsman.executor.weights.checkpoint import Checkpoint
from helmsman.lowering.lower import TOKEN_BYTES
from helmsman.schemas.plan import Plan

HIDDEN_BYTES = 4
"""Hidden states are f32 everywhere, also where they cross a link."""


@dataclass(frozen=True)
class Wired:
    """The legs of a pass. `tokens`: int32 view of what the embedding reads and, after a pass, of the choice."""

    legs: tuple[Leg, ...]
    tokens: NDArray[np.int32]
    last: RunnableStage
    lanes: tuple[Lane, ...]


def load_legs(
    plan: Plan,
    parts: Sequence[Part],
    devices: Devices,
    checkpoint: Path,
    max_tokens: int,
    on_bytes: Callable[[int], None],
) -> Wired:
    """Load `checkpoint` into the stages of `parts` and wire them for passes of up to `max_tokens` tokens."""
    wiring = _Wiring(plan, devices, max_tokens)
    builder = StageBuilder(plan, rope_tables(plan.model, plan.workload.context), max_tokens)
    opened = Checkpoint.open(checkpoint, plan.model)
    memories = {device.memory.name: device.memory for device in devices.by_name.values()}
    placers = {name: Placer(plan, opened, memory, on_bytes) for name, memory in memories.items()}
    stages = []
    for part in parts:
        device = devices.by_name[part.device]
        stages.append(builder.build(part, device, placers[device.memory.name]))
    return wiring.wire(parts, stages)


class _Wiring:
    """Allocates what stages exchange and inserts a copy wherever two memories meet."""

    def __init__(self, plan: Plan, devices: Devices, max_tokens: int) -> None:
        self._plan = plan
        self._devices = devices
        self._max_tokens = max_tokens
        self._batch = plan.workload.batch
        self._hidden = HIDDEN_BYTES * plan.model.hidden * self._batch
        self._lanes: dict[str, Lane] = {}

    def wire(self, parts: Sequence[Part], stages: Sequence[RunnableStage]) -> Wired:
        first = self._device(parts[0])
        tokens = self._token_buffer(first)
        legs: list[Leg] = []
        source = tokens
        for part, stage in zip(parts, stages, strict=True):
            target = self._target(part, first, tokens)
            legs.append(StageLeg(stage, source, target))
            following = [p for p in parts if p.start == part.stop]
            source = self._carry(legs, part, following[0], target) if following else target
        if source is not tokens:
            legs.append(self._copy("token", parts[-1], parts[0], source, tokens, fixed=TOKEN_BYTES))
        lanes = tuple(self._lanes.values())
        return Wired(tuple(legs), view(tokens, np.int32), stages[-1], lanes)

    def _target(self, part: Part, first: Device, tokens: Buffer) -> Buffer:
        """Where a part's result goes; a choice made in the embedding's memory goes straight to its input."""
        device = self._device(part)
        if not part.heads:
            return device.memory.alloc(self._hidden * self._max_tokens, "hidden states out")
        if device.memory is first.memory:
            return tokens
        return device.memory.alloc(TOKEN_BYTES * self._batch, "chosen tokens")

    def _carry(self, legs: list[Leg], part: Part, following: Part, made: Buffer) -> Buffer:
        """The buffer in which the following part finds the hidden states."""
        home = self._device(following).memory
        if home is self._device(part).memory:
            return made
        brought = home.alloc(self._hidden * self._max_tokens, "hidden states in")
        layer = f"{following.blocks.start}." if following.blocks else ""
        legs.append(self._copy(f"{layer}hidden", part, following, made, brought, per_token=self._hidden))
        return brought

    def _copy(
        self,
        what: str,
        origin: Part,
        goal: Part,
        source: Buffer,
        target: Buffer,
        fixed: int = 0,
        per_token: int = 0,
    ) -> CopyLeg:
        lane = self._devices.lane(self._device(origin).memory.name, self._device(goal).memory.name)
        self._lanes[lane.name] = lane
        return CopyLeg(f"{what}@{lane.name}", lane, source, target, fixed * self._batch, per_token)

    def _token_buffer(self, first: Device) -> Buffer:
        return first.memory.alloc(TOKEN_BYTES * self._batch * self._max_tokens, "tokens")

    def _device(self, part: Part) -> Device:
        return self._devices.by_name[part.device]
