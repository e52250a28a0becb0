"""Predict by the cost model what a placement takes: seconds per phase, their terms, memory, bottleneck, gap."""

from dataclasses import dataclass
from functools import cached_property

from helmsman.lowering.paging import passes_of
from helmsman.lowering.pass_shape import pass_of
from helmsman.lowering.placement import KnownPlan, Placed, batches_together, known
from helmsman.planner.cost.model import CostModel
from helmsman.planner.memory.usage import memory_use
from helmsman.planner.prediction.objective import objective_seconds, phase_weights, weighted_seconds
from helmsman.planner.prediction.pass_figures import LoweredPass, PassesFigures, PassFigures, PhaseFigures
from helmsman.planner.prediction.prompt_passes import weighted_passes
from helmsman.planner.prediction.routing_cases import assumed_routing
from helmsman.scheduler.iteration import Iteration, Phase
from helmsman.schemas.objective import Objective
from helmsman.schemas.predicted import Interval, MemoryUse, PhasePrediction, Predicted, Seconds
from helmsman.schemas.workload import Workload


@dataclass(frozen=True)
class PlacementFigures:
    """The figures of a placement, each worked out when it is asked for."""

    placed: KnownPlan
    costs: CostModel

    @cached_property
    def prefill(self) -> PhaseFigures:
        """Return those of the whole prompt, the sum of its passes (`planner.prediction.prompt_passes`)."""
        looked = weighted_passes(self.placed, passes_of(self.placed))
        passes = [(PassFigures(pass_of(self.placed, one_pass), self.costs), weight) for one_pass, weight in looked]
        if len(passes) == 1:
            return passes[0][0]
        return PassesFigures(passes, self.placed.workload.prompt_tokens, self.costs)

    @cached_property
    def decode(self) -> PhaseFigures:
        """Return those of the mean decode step."""
        step = mean_step(self.placed.workload, batches_together(self.placed))
        return PassFigures(pass_of(self.placed, step), self.costs)

    def expected(self, objective: Objective) -> float:
        """Return the expected seconds of an objective, without the ends of their interval."""
        together = batches_together(self.placed)
        weights = phase_weights(objective, self.placed.workload, together)
        return weighted_seconds(weights, lambda phase: (self.prefill if phase == "prefill" else self.decode).expected)

    @cached_property
    def memory(self) -> tuple[MemoryUse, ...]:
        """Return what is needed in each memory."""
        return memory_use(self.placed)

    @cached_property
    def document(self) -> Predicted:
        """Return the prediction as a plan has it."""
        made = assemble(self.placed, self.prefill.document, self.decode.document, self.memory)
        routing = assumed_routing(self.placed, lambda other, phase: phase_seconds(other, self.costs, phase))
        return made if routing is None else made.model_copy(update={"routing": routing})


def predict(placed: Placed, costs: CostModel) -> Predicted:
    """Predict the prompt pass and the average decode step of the placement's workload."""
    return PlacementFigures(known(placed), costs).document


def assemble(
    placed: Placed, first: PhasePrediction, step: PhasePrediction, memory: tuple[MemoryUse, ...] | None = None
) -> Predicted:
    """The prediction document of the two phases; `memory`: what is needed in each, where that is known."""
    work, together = placed.workload, batches_together(placed)
    predicted = Predicted(
        prefill=first,
        decode=step,
        ttft=Seconds(seconds=first.seconds),
        tokens_per_second=_inverse(step.seconds, work.batch * together),
        memory=memory_use(placed) if memory is None else memory,
    )
    request = objective_seconds(predicted, work, together, "request")
    return predicted.model_copy(update={"request": Seconds(seconds=request)})


def phase_seconds(placed: Placed, costs: CostModel, phase: Phase) -> float:
    """The expected seconds of all prompt passes, or of the mean decode step."""
    placed = known(placed)
    if phase == "decode":
        return pass_seconds(pass_of(placed, mean_step(placed.workload, batches_together(placed))), costs)
    passes = weighted_passes(placed, passes_of(placed))
    return sum(weight * pass_seconds(pass_of(placed, one_pass), costs) for one_pass, weight in passes)


def mean_step(workload: Workload, batches: int = 1) -> Iteration:
    """The decode step at the mean context of all decode steps."""
    context = min(workload.mean_context, workload.context)
    return Iteration(1, "decode", workload.batch, 1, context, batches)


def predict_phase(graph: LoweredPass, costs: CostModel) -> PhasePrediction:
    """Seconds of one pass, the terms they are the sum of, and the gap to the lower bound."""
    return PassFigures(graph, costs).document


def pass_interval(graph: LoweredPass, costs: CostModel) -> Interval:
    """The interval of the seconds of one pass alone."""
    return PassFigures(graph, costs).seconds


def pass_seconds(graph: LoweredPass, costs: CostModel) -> float:
    """The expected seconds of one pass alone."""
    return PassFigures(graph, costs).expected


def _inverse(seconds: Interval, batch: int) -> Interval:
    return Interval(low=batch / seconds.high, mid=batch / seconds.mid, high=batch / seconds.low)
