"""`layerwise-map` (HeLM): more of the accelerator for layers that load while short ones compute (GUPTA-23..26, 52)."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, product
from pathlib import Path
from typing import Literal

from helmsman.planner.cost.model import CostOptions
from helmsman.planner.decision import Decision
from helmsman.planner.registry import Method
from helmsman.planner.request import PlanRequest
from helmsman.planner.strategies.common_options import (
    compress_option,
    home_option,
    inclusive_option,
    kv_rule_option,
    kv_store_option,
    managed_option,
    nvme_option,
    paper_option,
    percent_option,
    table_option,
)
from helmsman.planner.strategies.offload.allocation import Percentages, by_size, middles
from helmsman.planner.strategies.offload.caches import CacheRule
from helmsman.planner.strategies.offload.keeping import decide_in_tiers
from helmsman.planner.strategies.offload.place import Keeping, Tiers
from helmsman.planner.strategies.offload.strategy import Offloading
from helmsman.planner.strategies.offload.sublayers import Kind, Sublayer, achieved, sublayers
from helmsman.planner.strategies.streaming.framing import frame_of
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.schemas.model import Model
from helmsman.schemas.objective import DEFAULT_OBJECTIVE, Objective

PRINTED: dict[Kind, float] = {"attention": 10, "ffn": 30}
"""Per cent of the accelerator in Listing 3, for OPT (GUPTA-24)."""


@dataclass(frozen=True, slots=True)
class LayerwiseMap:
    """Listing 3 with so many per cent of `attention` and of `ffn` for the accelerator, the rest of them in host memory;
    `others`: percentages of the embedding and the output."""

    attention: float
    ffn: float
    others: Percentages

    @property
    def name(self) -> str:
        """Return its name on the command line."""
        return "layerwise-map"

    def tiers(self, model: Model) -> Tiers:
        """The tier of every tensor."""
        return {layer.kind: by_size(layer.tensors, self._percentages(layer)) for layer in sublayers(model)}

    def _percentages(self, layer: Sublayer) -> Percentages:
        if layer.kind not in ("attention", "ffn"):
            return self.others
        most = self.attention if layer.kind == "attention" else self.ffn
        return Percentages(0, 100 - most, most)

    def title(self, model: Model) -> str:
        """`layerwise-map attention 10 % ffn 30 %`, and what is reached of all weights."""
        share = achieved(model, self.tiers(model))["accelerator"]
        return f"layerwise-map attention {self.attention:.3g} % ffn {self.ffn:.3g} % ({share:.3g} % resident)"


def outcomes(model: Model, others: Percentages) -> Iterator[LayerwiseMap]:
    """Listing 3 with every pair of percentages that puts other matrices on the accelerator, vectors always there: its
    outcome changes at the middles of tensors only, so that these few stand for all (E-GUPTA-03)."""
    steps = {layer.kind: _steps(layer) for layer in sublayers(model)}
    for attention, ffn in product(steps["attention"], steps["ffn"]):
        yield LayerwiseMap(attention, ffn, others)


def best_map(
    frame: Frame,
    others: Percentages,
    keeping: Keeping,
    costs: CostOptions,
    objective: Objective = DEFAULT_OBJECTIVE,
) -> Offloading:
    """The outcome of Listing 3 that is best by the objective, of those that fit; if none does, the one that keeps least
    on the accelerator."""
    offloadings = [Offloading(frame, outcome, keeping, costs, objective) for outcome in outcomes(frame.model, others)]
    fitting = [offloading for offloading in offloadings if offloading.fits(frame.workload)]
    return min(fitting, key=Offloading.seconds, default=offloadings[0])


def _steps(layer: Sublayer) -> tuple[float, ...]:
    """Percentages between the middles of neighbours, from all vectors to all tensors."""
    rising = sorted(layer.tensors, key=lambda tensor: tensor.elements)
    vectors = sum(len(tensor.shape) == 1 for tensor in rising)
    places = (*middles(rising), 100.0)
    return tuple((below + above) / 2 for below, above in pairwise(places[vectors - 1 :]))


@dataclass(frozen=True, slots=True)
class LayerwiseMapOptions:
    """Options of `layerwise-map`."""

    compress: str = compress_option()
    table: Path | None = table_option()
    home: str | None = home_option()
    kv_rule: CacheRule | None = kv_rule_option()
    kv_store: str | None = kv_store_option()
    managed: bool = managed_option()
    percent: str | None = percent_option()
    inclusive: bool = inclusive_option()
    nvme: Literal["direct", "bounce"] | None = nvme_option()
    paper: bool = paper_option()


def _decide(request: PlanRequest[LayerwiseMapOptions]) -> Decision:
    options = request.options
    frame = frame_of(request, options.table)
    percentages = Percentages.read(options.percent)

    def chosen(keeping: Keeping, costs: CostOptions) -> Offloading:
        if not options.paper:
            return best_map(frame, percentages, keeping, costs, request.objective)
        printed = LayerwiseMap(PRINTED["attention"], PRINTED["ffn"], percentages)
        return Offloading(frame, printed, keeping, costs, request.objective)

    return decide_in_tiers(request, options, frame, chosen)


STRATEGY = Method(
    "layerwise-map", "HeLM: shares of every layer by what it computes", LayerwiseMapOptions, _decide, streams=True
)
