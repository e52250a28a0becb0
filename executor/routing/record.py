"""Records which experts every token of a run chose, layer by layer, as routers leave it beside their choice."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np
from numpy.typing import NDArray

from helmsman.executor._kernels import Buffer
from helmsman.executor.devices.base import DeviceMemory
from helmsman.executor.devices.memory import view
from helmsman.executor.devices.value_sizes import INDEX_BYTES
from helmsman.lowering.routing import experts_of
from helmsman.schemas.errors import UsageError
from helmsman.schemas.model import Model
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import digest
from helmsman.schemas.routing_trace import RoutedLayer, RoutingTrace, RoutingTraceInfo, TokenChoice

Chosen = NDArray[np.int32]
"""(sequences, context, chosen): experts by position."""


@dataclass
class RoutingRecord:
    """The choices of the passes of a run. `kept`: by layer and batch, what routers chose last at every position."""

    plan: Plan
    _rooms: dict[tuple[int, int], Buffer] = field(default_factory=dict)
    _kept: dict[tuple[int, int], Chosen] = field(default_factory=dict)
    _choices: list[TokenChoice] = field(default_factory=list)

    def room(self, layer: int, batch: int, memory: DeviceMemory) -> Buffer:
        """Return where the routers of a layer leave what they choose, whichever device and phase they are of."""
        if (layer, batch) in self._rooms:
            return self._rooms[layer, batch]
        experts = experts_of(self.plan.model, layer)
        assert experts is not None, "a layer with a router"
        shape = self.plan.workload.batch, self.plan.workload.context, experts.chosen
        buffer = self._rooms[layer, batch] = memory.share(INDEX_BYTES * prod(shape), "chosen experts")
        self._kept[layer, batch] = view(buffer, np.int32)[: prod(shape)].reshape(shape)
        return buffer

    def add(self, iteration: int, positions: range) -> None:
        """Keep what the tokens of a pass chose."""
        self._choices += self._of(iteration, positions)

    def _of(self, iteration: int, positions: range) -> Iterator[TokenChoice]:
        size = self.plan.workload.batch
        for layer, batch in sorted(self._kept):
            chosen = self._kept[layer, batch][:, positions.start : positions.stop].tolist()
            for number, sequence in enumerate(chosen):
                for position, experts in zip(positions, sequence, strict=True):
                    yield TokenChoice(iteration, layer, batch * size + number, position, tuple(experts))

    def trace(self) -> RoutingTrace:
        """Return all that was recorded."""
        model = self.plan.model
        info = RoutingTraceInfo(model=model.name, model_sha256=digest(model), layers=tuple(_layers(model)))
        return RoutingTrace(info, tuple(self._choices))

    def restart(self) -> None:
        """Forget what was recorded."""
        self._choices.clear()


def check_recorded(model: Model, growing: bool) -> None:
    """Raise UsageError where there is nothing to record, or caches grow, whose positions change their places."""
    if not _layers(model):
        raise UsageError(f"{model.name} has no routed experts", field="routing-trace", remedy="leave it out")
    if growing:
        raise UsageError("growing caches record no routing", field="kv-cache", value="growing", remedy="leave it out")


def _layers(model: Model) -> Sequence[RoutedLayer]:
    routed = ((layer, experts_of(model, layer)) for layer in range(model.layers))
    return [RoutedLayer(layer=layer, experts=op.experts, chosen=op.chosen) for layer, op in routed if op is not None]
