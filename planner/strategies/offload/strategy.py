"""An offloading strategy: an allocator's homes as a plan, or what would have to change for it to fit."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from helmsman.lowering.placement import Placement
from helmsman.planner.cost.model import CostModel, CostOptions
from helmsman.planner.decision import Decision
from helmsman.planner.memory.usage import memory_use, shortages
from helmsman.planner.options import Recorded
from helmsman.planner.prediction.objective import weighted_seconds
from helmsman.planner.prediction.predict import phase_seconds
from helmsman.planner.strategies.offload.caches import cache_label, least_away
from helmsman.planner.strategies.offload.place import Keeping, Tiers, place
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.planner.strategies.streaming.prefix_store import store_label
from helmsman.planner.strategies.streaming.question import Question
from helmsman.scheduler.iteration import Phase
from helmsman.schemas.model import Model
from helmsman.schemas.objective import DEFAULT_OBJECTIVE, Objective
from helmsman.schemas.workload import Workload

_FEW_LAYERS = 2
_MORE_LAYERS = 4
"""The layers of two models; the mean of their difference is what one more layer takes."""


class Allocator(Protocol):
    """The parts that a published method adds: its name, and which tensor goes to which tier."""

    @property
    def name(self) -> str:
        """Return its name on the command line."""

    def tiers(self, model: Model) -> Tiers:
        """The tier of every tensor."""

    def title(self, model: Model) -> str:
        """In a few words for people."""


@dataclass(frozen=True)
class Offloading:
    """The plan of `allocator` for one question."""

    frame: Frame
    allocator: Allocator
    keeping: Keeping
    cost_options: CostOptions
    objective: Objective = DEFAULT_OBJECTIVE

    def decide(self, recorded: Recorded) -> Decision:
        """The plan. Raises InfeasibleError when it does not fit, with the largest batch that does."""
        name = self.allocator.name
        if not self._question.fits(self.placement):
            raise self._question.infeasible(name, self.placement, lambda question: self.fits(question.frame.workload))
        return self._question.decision(name, self.label, self.placement, recorded)

    @property
    def _question(self) -> Question:
        return Question(self.frame, self.cost_options, self.objective)

    @cached_property
    def placement(self) -> Placement:
        """The allocator's rules. Raises UsageError for a machine without a separate accelerator."""
        self._question.check(self.allocator.name)
        return place(self.frame, self.allocator.tiers(self.frame.model), self.kept)

    @cached_property
    def kept(self) -> Keeping:
        """How tiers keep things, with as few parts of the caches in host memory as fit, unless some are asked for."""
        keeping, model = self.keeping, self.frame.model
        if keeping.away:
            return keeping
        return replace(
            keeping, away=least_away(model, keeping.cache, lambda away: self._fits(replace(keeping, away=away)))
        )

    def _fits(self, keeping: Keeping) -> bool:
        return not shortages(memory_use(place(self.frame, self.allocator.tiers(self.frame.model), keeping)))

    @property
    def label(self) -> str:
        """The allocator's title, and how things are kept: `weights-on-host optane q4 4x8`."""
        work, keeping = self.frame.workload, self.kept
        parts = [self.allocator.title(self.frame.model)]
        parts += [keeping.host] if keeping.host != self.frame.roles.host.memory else []
        parts += ["q4"] if keeping.compress else []
        parts += [name for name, on in (("inclusive", keeping.inclusive), ("managed", keeping.managed)) if on]
        parts += cache_label(self.frame.model, keeping.cache, keeping.away)
        parts += store_label(self.frame, keeping.store)
        parts += ["host attention"] if keeping.delegate else []
        parts += [f"{work.batches}x{work.batch}"] if work.batches > 1 else []
        return " ".join(parts)

    @cached_property
    def costs(self) -> CostModel:
        """Prices from the operation table that fits the question, and rooflines for the rest."""
        return self._question.costs(self.placement)

    def seconds(self) -> float:
        """The expected seconds of the objective."""
        return weighted_seconds(self._question.weights(self.placement), self.phase_seconds)

    def step_seconds(self) -> float:
        """The expected seconds of the mean decode step."""
        return self.phase_seconds("decode")

    def phase_seconds(self, phase: Phase) -> float:
        """The expected seconds of a phase: of a few layers, and as many more as the model has, where all are alike."""
        layers = self.frame.model.layers
        if layers <= _MORE_LAYERS or self.keeping.cache == "layerkv":
            return self._of_layers(layers, phase)
        few, more = self._of_layers(_FEW_LAYERS, phase), self._of_layers(_MORE_LAYERS, phase)
        return more + (layers - _MORE_LAYERS) * (more - few) / (_MORE_LAYERS - _FEW_LAYERS)

    def _of_layers(self, layers: int, phase: Phase) -> float:
        frame = replace(self.frame, model=self.frame.model.with_layers(layers))
        return phase_seconds(place(frame, self.allocator.tiers(frame.model), self.kept), self.costs, phase)

    def fits(self, workload: Workload) -> bool:
        """Whether the same allocation fits for another workload."""
        other = replace(self, frame=replace(self.frame, workload=workload))
        return not shortages(memory_use(other.placement))
