"""An assignment as it is predicted: block by block in order."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from helmsman.lowering.lower import lower
from helmsman.lowering.placement import batches_together, known
from helmsman.planner.prediction.objective import weighted_seconds
from helmsman.planner.prediction.predict import mean_step, pass_seconds
from helmsman.planner.strategies.optimal.configurations.rules import Assignment, place
from helmsman.planner.strategies.optimal.search.compositions import Aim
from helmsman.planner.strategies.streaming.question import Question
from helmsman.scheduler.iteration import prefill


@dataclass(frozen=True)
class Finalist:
    """An assignment of one question's blocks as it is predicted: `seconds` by which a search compares it, `counted`
    seconds of the objective, which are those without what only chooses among equal plans."""

    question: Question
    chosen: Assignment
    seconds: float
    counted: float


def predicted(question: Question, chosen: Assignment, aim: Aim) -> Finalist | None:
    """An assignment as it is predicted; None if it does not fit, or is over a limit."""
    placed = known(place(question.frame, chosen))
    if not question.fits(placed):
        return None
    costs, together, work = question.costs(placed), batches_together(placed), placed.workload
    passes = {"prefill": prefill(work, together), "decode": mean_step(work, together)}
    took = {phase: pass_seconds(lower(placed, passes[phase]), costs) for phase in aim.phases}
    if any(took[phase] > limit for phase, limit in aim.limits.items()):
        return None
    seconds, counted = (weighted_seconds(weights, took.__getitem__) for weights in (aim.weights, aim.counted))
    return Finalist(question, chosen, seconds, counted)


def least(finalists: Sequence[Finalist]) -> float:
    """The least seconds."""
    return min((finalist.seconds for finalist in finalists), default=inf)
