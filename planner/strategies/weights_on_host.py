"""`weights-on-host`: every weight in host memory, the accelerator's for keys, values and hidden states (GUPTA-28)."""

from dataclasses import dataclass, replace
from pathlib import Path

from helmsman.planner.decision import Decision
from helmsman.planner.registry import Method
from helmsman.planner.request import PlanRequest
from helmsman.planner.strategies.common_options import (
    compress_option,
    home_option,
    kv_rule_option,
    kv_store_option,
    managed_option,
    paper_option,
    table_option,
)
from helmsman.planner.strategies.offload.caches import CacheRule
from helmsman.planner.strategies.offload.keeping import keeping_of
from helmsman.planner.strategies.offload.place import Tiers
from helmsman.planner.strategies.offload.strategy import Offloading
from helmsman.planner.strategies.offload.sublayers import sublayers
from helmsman.planner.strategies.streaming.framing import frame_of, with_doubts
from helmsman.schemas.model import Model


@dataclass(frozen=True, slots=True)
class WeightsOnHost:
    """Nothing but streamed weights: the largest batches."""

    @property
    def name(self) -> str:
        """Return its name on the command line."""
        return "weights-on-host"

    def tiers(self, model: Model) -> Tiers:
        """The host's, for every tensor."""
        return {layer.kind: tuple("host" for _ in layer.tensors) for layer in sublayers(model)}

    def title(self, model: Model) -> str:
        """`weights-on-host`, whatever the model."""
        return self.name


@dataclass(frozen=True, slots=True)
class WeightsOnHostOptions:
    """Options of `weights-on-host`."""

    compress: str = compress_option()
    table: Path | None = table_option()
    home: str | None = home_option()
    kv_rule: CacheRule | None = kv_rule_option()
    kv_store: str | None = kv_store_option()
    managed: bool = managed_option()
    paper: bool = paper_option()


def _decide(request: PlanRequest[WeightsOnHostOptions]) -> Decision:
    options = request.options
    frame = frame_of(request, options.table)
    costs = replace(request.prices, capped=not options.paper)
    keeping = keeping_of(frame, options, options.kv_rule, options.kv_store, managed=options.managed)
    recorded = {**request.recorded(), "capped": costs.capped}
    strategy = Offloading(frame, WeightsOnHost(), keeping, costs, request.objective)
    return with_doubts(lambda: strategy.decide(recorded), options.table, frame)


STRATEGY = Method(
    "weights-on-host",
    "All-CPU (Gupta): all weights in host memory, read by the accelerator",
    WeightsOnHostOptions,
    _decide,
    streams=True,
)
