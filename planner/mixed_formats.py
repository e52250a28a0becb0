"""A plan whose tensors are kept in several formats, as some files mix them."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from helmsman.lowering.placement import batches_together
from helmsman.lowering.tensors import tensors
from helmsman.planner.checks.accept import accept
from helmsman.planner.cost.model import CostModel
from helmsman.planner.cost.plan_costs import cost_model
from helmsman.planner.decision import Decision
from helmsman.planner.prediction.objective import objective_seconds
from helmsman.planner.prediction.predict import predict
from helmsman.planner.prediction.speed import planned, seconds
from helmsman.planner.registry import RECOMMENDED
from helmsman.planner.request import PlanRequest
from helmsman.planner.tensor_formats import Formats, exceptions
from helmsman.schemas.errors import HelmError, InfeasibleError, UsageError
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.model import Model
from helmsman.schemas.objective import Objective
from helmsman.schemas.plan import Plan


def with_formats(plan: Plan, formats: Formats, costs: CostModel) -> Plan:
    """`plan` with every tensor in its own format where its rules say another, predicted again.

    Rules are added before those that they make exceptions of: one for each name, home and format. Raises
    InfeasibleError where the memories do not hold it."""
    own = tuple(exceptions(plan, formats))
    if not own:
        return accept(plan)
    changed = accept(plan.model_copy(update={"residence": (*own, *plan.residence)}))  # only what fits has a bound
    return changed.model_copy(update={"predicted": predict(changed, costs)})


def decide_mixed(request: PlanRequest[Any], decide: Callable[[PlanRequest[Any]], Decision]) -> Decision:
    """Return the decision of `decide`; where tensors have formats of their own, the fastest of the plans that it makes
    for weights in one of them, each with all formats then. `optimal` compares with all formats from the start, and the
    recommended plan is chosen among strategies that were each asked about all formats.

    Raises what the last one raises where none fits."""
    formats = request.formats
    if not formats or request.strategy == RECOMMENDED:
        return decide(request)
    _check_options(request.options)
    decisions = list[Decision]()
    refused: HelmError | None = None
    for fmt in format_sizes(request.model, formats):
        try:
            decision = decide(replace(request, weights=fmt))
            plan = with_formats(decision.plan, formats, cost_model(decision.plan))
        except (InfeasibleError, UsageError) as error:
            refused = error
            continue
        decisions.append(_mixed(decision, plan, request.objective))
    if not decisions:
        assert refused is not None
        raise refused
    return min(decisions, key=lambda decision: seconds(planned(decision.plan), request.objective))


def _check_options(options: object) -> None:
    """Raise UsageError for what plans of several formats cannot have."""
    if getattr(options, "explain", False):
        raise UsageError("plans of mixed formats are not explained", field="explain", remedy="name one `format`")
    compress = getattr(options, "compress", "none")
    if compress in ("weights", "all", "best"):
        message = "every tensor is kept in the format of the file"
        remedy = "leave it out, or name one `format` that is not quantised"
        raise UsageError(message, field="compress", value=compress, remedy=remedy)


def _mixed(decision: Decision, plan: Plan, objective: Objective) -> Decision:
    """The decision for a plan with all formats; candidates that were compared in one have no place beside it."""
    if plan is decision.plan:
        return replace(decision, explained=None)
    took = objective_seconds(plan.predicted, plan.workload, batches_together(plan), objective).mid
    return replace(decision, plan=plan, seconds=took, explained=None, runner_ups=(), rejected=())


def format_sizes(model: Model, formats: Formats) -> dict[StoredFormat, int]:
    """Values of matrices by format, the most first."""
    counted: Counter[StoredFormat] = Counter()
    for tensor in tensors(model):
        if (tensor.name, tensor.layer) in formats:
            counted[formats[tensor.name, tensor.layer]] += tensor.elements
    return dict(counted.most_common())
