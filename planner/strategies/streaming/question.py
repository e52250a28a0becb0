"""A question whose candidates are placements: how they are priced, whether they fit, and the plan of the one chosen."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from helmsman.lowering.placement import Placed, Placement, batches_together, known, shaped
from helmsman.planner.batches.largest import largest_batch
from helmsman.planner.cost.model import CostModel, CostOptions
from helmsman.planner.cost.plan_costs import costs_of_placement
from helmsman.planner.decision import Decision, PlanDraft
from helmsman.planner.machine import check_separate
from helmsman.planner.memory.names import room_in_words
from helmsman.planner.memory.usage import memory_use, shortages
from helmsman.planner.options import Recorded
from helmsman.planner.prediction.objective import phase_weights, weighted_seconds
from helmsman.planner.prediction.predict import PlacementFigures, phase_seconds
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.scheduler.iteration import Phase
from helmsman.schemas.errors import InfeasibleError
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.objective import DEFAULT_OBJECTIVE, Objective
from helmsman.schemas.plan import Strategy


@dataclass(frozen=True)
class Question:
    """The question to a strategy whose host and accelerator both work, and what its plan is to be best at."""

    frame: Frame
    cost_options: CostOptions
    objective: Objective = DEFAULT_OBJECTIVE

    def check(self, name: str) -> None:
        """Raise UsageError where strategy `name` has no accelerator with a memory of its own to work with."""
        check_separate(self.frame.roles, name)

    def costs(self, placed: Placed) -> CostModel:
        """Prices of a candidate: of the operation table that fits it, and rooflines for the rest."""
        return costs_of_placement(placed, self.cost_options)

    def step_seconds(self, placed: Placement) -> float:
        """The expected seconds of a candidate's mean decode step."""
        return phase_seconds(placed, self.costs(placed), "decode")

    def weights(self, placed: Placed) -> Mapping[Phase, float]:
        """How often the phases count in the objective."""
        return phase_weights(self.objective, placed.workload, batches_together(placed))

    def seconds(self, placed: Placed) -> float:
        """The expected seconds of a candidate's objective."""
        costs, read = self.costs(placed), known(placed)
        return weighted_seconds(self.weights(placed), lambda phase: phase_seconds(read, costs, phase))

    def fits(self, placed: Placed) -> bool:
        """Whether a candidate fits every memory."""
        return not self.lacks(placed)

    def lacks(self, placed: Placed) -> dict[str, int]:
        """Bytes that a candidate lacks, by memory."""
        return shortages(memory_use(shaped(placed)))

    def of(self, batch: int | None = None, layers: int | None = None) -> "Question":
        """Return the same question for another batch, or a model of so many blocks."""
        frame = self.frame
        if batch is not None:
            frame = replace(frame, workload=frame.workload.model_copy(update={"batch": batch}))
        if layers is not None:
            frame = replace(frame, model=frame.model.with_layers(layers))
        return replace(self, frame=frame)

    def infeasible(
        self, name: str, placed: Placement, fits: "Callable[[Question], bool]", option: str | None = None
    ) -> InfeasibleError:
        """Return what strategy `name` lacks for `placed`, an `option` that would do, and the largest batch that
        `fits`."""
        return self.refused(name, self.lacks(placed), fits, option)

    def refused(
        self, name: str, missing: Mapping[str, int], fits: "Callable[[Question], bool]", option: str | None = None
    ) -> InfeasibleError:
        """Return the error where so many bytes are `missing` by memory."""
        lacks = room_in_words(self.frame.roles.hardware, missing.items())
        message = f"{name} does not fit {self.frame.roles.hardware.name}"
        remedy = ", or ".join([f"{lacks} would do", *([option] if option else ())])

        def largest() -> int:
            return largest_batch(self.frame.workload, lambda work: fits(self.of(batch=work.batch)))

        return InfeasibleError(message, remedy=remedy, lacks=missing, largest=largest)

    def decision(
        self,
        name: str,
        label: str,
        placed: Placement,
        recorded: Recorded,
        evaluated: int = 1,
        machine: Hardware | None = None,
    ) -> Decision:
        """The plan of `placed`; `machine`: as in a Plan."""
        costs = self.costs(placed)
        options = {**recorded, "operation_table": costs.table is not None}
        figures = PlacementFigures(shaped(placed), costs)
        draft = PlanDraft(placed, label, Strategy(name=name, options=options), figures, machine=machine)
        return Decision(draft, figures.expected(self.objective), (), (), self.frame.roles.unused, evaluated)
