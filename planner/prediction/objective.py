"""The objective of a search in seconds: how often the prompt pass and the mean decode step count, and their sum."""

from collections.abc import Callable, Mapping
from typing import Protocol

from helmsman.scheduler.iteration import Phase
from helmsman.schemas.objective import Objective
from helmsman.schemas.predicted import Interval, PhasePrediction, Predicted
from helmsman.schemas.workload import Workload


class PhaseSeconds(Protocol):
    """The prediction of a phase, as far as its seconds."""

    @property
    def seconds(self) -> Interval:
        """Of all of its passes."""


class Phases(Protocol):
    """The predictions of both phases, as `Predicted` has them."""

    @property
    def prefill(self) -> PhaseSeconds:
        """The prompt pass."""

    @property
    def decode(self) -> PhaseSeconds:
        """The mean decode step."""


def phase_weights(objective: Objective, workload: Workload, together: int) -> Mapping[Phase, float]:
    """How many times each phase counts where a pass advances `together` batches; phases that do not count are absent.

    latency and ttft are of one pass; request and throughput are of all batches, which take turns if not together."""
    if objective == "latency":
        return {"decode": 1.0}
    if objective == "ttft":
        return {"prefill": 1.0}
    turns = workload.batches / together
    steps = turns * workload.decode_steps
    return {"prefill": turns, "decode": steps} if steps else {"prefill": turns}


def weights_of_all(objective: Objective, workload: Workload, together: int) -> Mapping[Phase, float]:
    """How many times each phase counts until all batches have what the objective is of: a step or a prompt is that of
    every batch. By this, plans whose batches take turns compare with plans that advance them together."""
    turns = workload.batches / together
    return {phase: turns * count for phase, count in phase_weights(objective, workload, workload.batches).items()}


def weighted_seconds(weights: Mapping[Phase, float], seconds: Callable[[Phase], float]) -> float:
    """The sum of the phases' `seconds`; a phase that does not count is not asked about."""
    return sum(weight * seconds(phase) for phase, weight in weights.items())


def objective_seconds(predicted: Phases, workload: Workload, together: int, objective: Objective) -> Interval:
    """Seconds of the objective of a plan that is `predicted`."""
    return weighted_interval(phase_weights(objective, workload, together), predicted)


def weighted_interval(weights: Mapping[Phase, float], predicted: Phases) -> Interval:
    """The sum of the phases as often as they count; uncertain phases add linearly, as terms do."""

    def total(end: Callable[[Interval], float]) -> float:
        phases: Mapping[Phase, PhaseSeconds] = {"prefill": predicted.prefill, "decode": predicted.decode}
        return weighted_seconds(weights, lambda phase: end(phases[phase].seconds))

    return Interval(
        low=total(lambda estimate: estimate.low),
        mid=total(lambda estimate: estimate.mid),
        high=total(lambda estimate: estimate.high),
    )


def objective_bound(predicted: Predicted, workload: Workload, together: int, objective: Objective) -> float:
    """Seconds of the objective that no plan beats whose passes advance `together` batches as well: the lower bound of
    each phase, as often as it counts."""
    phases: Mapping[Phase, PhasePrediction] = {"prefill": predicted.prefill, "decode": predicted.decode}
    weights = phase_weights(objective, workload, together)
    return weighted_seconds(weights, lambda phase: phases[phase].lower_bound)
