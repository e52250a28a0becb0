"""`expert-split` as a strategy: its options, and the fastest placement of experts for a request."""

from dataclasses import dataclass
from pathlib import Path

from helmsman.planner.decision import Decision
from helmsman.planner.registry import Method
from helmsman.planner.request import PlanRequest
from helmsman.planner.strategies.common_options import table_option
from helmsman.planner.strategies.expert_split.layout import expert_count
from helmsman.planner.strategies.expert_split.search import ExpertSearch
from helmsman.planner.strategies.streaming.framing import frame_of
from helmsman.planner.strategies.streaming.question import Question


@dataclass(frozen=True, slots=True)
class ExpertSplitOptions:
    """Options of `expert-split`."""

    table: Path | None = table_option()


def _decide(request: PlanRequest[ExpertSplitOptions]) -> Decision:
    """Return the fastest plan. Raises UsageError for a model without experts or a machine without an accelerator,
    InfeasibleError where none fits."""
    frame = frame_of(request, request.options.table, fused=True)
    expert_count(frame.model)
    question = Question(frame, request.prices, request.objective)
    question.check("expert-split")
    search = ExpertSearch(question)
    splits = search.splits()
    if not splits:
        raise question.infeasible("expert-split", search.nearest(), lambda other: bool(ExpertSearch(other).splits()))
    best, *others = splits
    decision = question.decision("expert-split", search.label(best), best.placement, request.recorded(), len(splits))
    return Decision(
        decision.plan,
        decision.seconds,
        tuple((search.label(other), other.seconds) for other in others),
        (),
        decision.unused,
        len(splits),
    )


STRATEGY = Method(
    "expert-split",
    "routed experts on the accelerator, the processors or both, by predicted time",
    ExpertSplitOptions,
    _decide,
)
