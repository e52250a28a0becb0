"""`expert-split` as a strategy: its options, and the fastest placement of experts for a request."""

from dataclasses import dataclass, replace
from pathlib import Path

from helmsman.planner.decision import Decision
from helmsman.planner.options import option
from helmsman.planner.registry import Method
from helmsman.planner.request import PlanRequest
from helmsman.planner.strategies.common_options import table_option
from helmsman.planner.strategies.expert_split.search import ExpertSearch
from helmsman.planner.strategies.expert_split.suited import check_experts
from helmsman.planner.strategies.streaming.framing import frame_of
from helmsman.planner.strategies.streaming.question import Question
from helmsman.planner.tensor_formats import told_apart

_MOST_KINDS = 4
"""Kinds of blocks that are told apart by formats: each is priced in every way, and files of hundreds of mixtures differ
in little but their few kinds of experts."""


@dataclass(frozen=True, slots=True)
class ExpertSplitOptions:
    """Options of `expert-split`."""

    table: Path | None = table_option()
    executed: bool = option(False, "expert-split: only placements that helm-run runs on devices of these kinds")


def _question(request: PlanRequest[ExpertSplitOptions]) -> Question:
    """Return the question of a request. Raises UsageError for a model without experts or a machine without an
    accelerator."""
    frame = frame_of(request, request.options.table, fused=True)
    model = told_apart(frame.model, request.formats, _MOST_KINDS, experts_alone=True)
    frame = replace(frame, model=model, formats=request.formats)
    check_experts(frame, "expert-split")
    return Question(frame, request.prices, request.objective)


def _decide(request: PlanRequest[ExpertSplitOptions]) -> Decision:
    """Return the fastest plan. Raises UsageError as `_question`, InfeasibleError where none fits."""
    question = _question(request)
    executed = request.options.executed
    search = ExpertSearch(question, executed)
    splits = search.splits() if search.fits() else []
    if not splits:
        raise question.infeasible("expert-split", search.nearest(), lambda other: ExpertSearch(other, executed).fits())
    best, *others = splits
    placement = replace(best.placement, model=request.model)
    decision = question.decision("expert-split", search.label(best), placement, request.recorded(), len(splits))
    return Decision(
        decision.drafted,
        decision.seconds,
        tuple((search.label(other), other.seconds) for other in others),
        (),
        decision.unused,
        len(splits),
    )


def _fits(request: PlanRequest[ExpertSplitOptions]) -> bool:
    return ExpertSearch(_question(request)).fits()


STRATEGY = Method(
    "expert-split",
    "routed experts on the accelerator, the processors or both, by predicted time",
    ExpertSplitOptions,
    _decide,
    fits=_fits,
    own_formats=True,
)
