"""A plan whose tensors are kept in several formats, as some files mix them."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import Any

from helmsman.lowering.placement import batches_of, shaped
from helmsman.lowering.tensors import tensors
from helmsman.planner.checks.accept import accept, check_memory
from helmsman.planner.cost.model import CostModel
from helmsman.planner.cost.plan_costs import cost_model, costs_of
from helmsman.planner.decision import Decision, PlanDraft
from helmsman.planner.prediction.objective import objective_seconds
from helmsman.planner.prediction.predict import PlacementFigures, predict
from helmsman.planner.prediction.speed import objective_of, speed
from helmsman.planner.registry import RECOMMENDED, method
from helmsman.planner.request import PlanRequest
from helmsman.planner.tensor_formats import Formats, exceptions, format_size
from helmsman.schemas.errors import HelmError, InfeasibleError, UsageError
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.model import Model
from helmsman.schemas.objective import Objective
from helmsman.schemas.plan import Plan

ENOUGH = 0.01
"""The part of a proven bound within which a plan is not asked for again: predictions are further off."""

Decide = Callable[[PlanRequest[Any]], Decision]


def with_formats(plan: Plan, formats: Formats, costs: CostModel) -> Plan:
    """`plan` with every tensor in its own format where its rules say another, predicted again.

    Rules are added before those that they make exceptions of: one for each name, home and format. Raises
    InfeasibleError where the memories do not hold it."""
    own = tuple(exceptions(plan, formats))
    if not own:
        return accept(plan)
    changed = accept(plan.model_copy(update={"residence": (*own, *plan.residence)}))  # only what fits has a bound
    return changed.model_copy(update={"predicted": predict(changed, costs)})


def decide_mixed(request: PlanRequest[Any], decide: Decide, propose: Decide | None = None) -> Decision:
    """Return the decision of `decide`; where tensors have formats of their own, the fastest of the plans that it, or
    `propose` in its place, makes for weights in one of them, each predicted with all formats then, up to the first that
    is proven to be within a hundredth of the best (of one batch). The format of most weights comes first; one that is
    no smaller than another whose plan fits is not asked about, as its plans leave more with the host. `optimal`
    compares with all formats from the start, others are asked once where they place tensors by their own formats, and
    the recommended plan is chosen among strategies that were each asked about all formats.

    Raises where none fits what is raised for the one that lacks least."""
    formats = request.formats
    if not formats or request.strategy == RECOMMENDED or places_own_formats(request):
        return decide(request)
    _check_options(request.options)
    decisions = list[Decision]()
    refused = list[HelmError]()
    least = inf
    for fmt in format_sizes(request.model, formats):
        size = format_size(fmt)
        if size >= least:
            continue
        try:
            uniform = (propose or decide)(replace(request, weights=fmt))
            decisions.append(_mixed(uniform, formats, request.objective))
            least = size
            if request.batch is None and request.batches is None and _is_proven(decisions[-1]):
                break
        except (InfeasibleError, UsageError) as error:
            refused.append(error)
    if not decisions:
        raise min(refused, key=_lacking)
    fastest = min(decisions, key=lambda decision: objective_of(speed(decision.outline), request.objective).mid)
    accept(fastest.plan)
    return fastest


def _lacking(refused: HelmError) -> float:
    """Return the bytes that a refusal says are missing; no number of them would do where it says none."""
    return sum(refused.lacks.values()) if isinstance(refused, InfeasibleError) and refused.lacks else inf


def _is_proven(decision: Decision) -> bool:
    """Whether plans made for weights in other formats can save next to nothing."""
    drafted = decision.drafted
    certificate = drafted.certificate if isinstance(drafted, Plan) else None
    return certificate is not None and certificate.gap <= ENOUGH


def places_own_formats(request: PlanRequest[Any]) -> bool:
    """Whether the request's strategy places tensors by the formats that they have of their own."""
    return method(request.strategy).own_formats


def _check_options(options: object) -> None:
    """Raise UsageError for what plans of several formats cannot have."""
    if getattr(options, "explain", False):
        raise UsageError("plans of mixed formats are not explained", field="explain", remedy="name one `format`")
    compress = getattr(options, "compress", "none")
    if compress in ("weights", "all", "best"):
        message = "every tensor is kept in the format of the file"
        remedy = "leave it out, or name one `format` that is not quantised"
        raise UsageError(message, field="compress", value=compress, remedy=remedy)


def _mixed(decision: Decision, formats: Formats, objective: Objective) -> Decision:
    """The decision for a plan with all formats; candidates that were compared in one have no place beside it. Raises
    InfeasibleError where the memories do not hold it."""
    decision = replace(decision, explained=None)
    drafted = decision.drafted
    if isinstance(drafted, PlanDraft):
        drafted = _draft_with_formats(drafted, formats)
    else:
        drafted = with_formats(drafted, formats, cost_model(drafted))
    if drafted is decision.drafted:
        return decision
    together = batches_of(drafted.workload, drafted.schedule)
    took = objective_seconds(drafted.predicted, drafted.workload, together, objective).mid
    return replace(decision, drafted=drafted, seconds=took, runner_ups=(), rejected=())


def _draft_with_formats(draft: PlanDraft, formats: Formats) -> PlanDraft:
    """The same of a plan that is not written down yet."""
    placement = draft.placement
    own = tuple(exceptions(shaped(placement), formats))
    if not own:
        return draft
    changed = replace(placement, residence=(*own, *placement.residence))
    check_memory(shaped(changed))  # only what fits has a bound
    figures = PlacementFigures(shaped(changed), costs_of(placement, draft.strategy))
    return replace(draft, placement=changed, predicted=figures)


def format_sizes(model: Model, formats: Formats) -> dict[StoredFormat, int]:
    """Values of matrices by format, the most first."""
    counted: Counter[StoredFormat] = Counter()
    for tensor in tensors(model):
        if (tensor.name, tensor.layer) in formats:
            counted[formats[tensor.name, tensor.layer]] += tensor.elements
    return dict(counted.most_common())
