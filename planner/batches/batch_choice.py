"""The batch, or the division into batches, that a request leaves open: as many sequences as fit by the memory model
(E-GUPTA-05), or as many as make the most tokens/s."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from helmsman.lowering.placement import batches_together
from helmsman.planner.batches.best_batches import BatchDivision, BestBatches, DividedPlan, Refusal
from helmsman.planner.batches.largest import doubling
from helmsman.planner.decision import Decision
from helmsman.planner.prediction.objective import objective_bound
from helmsman.planner.prediction.speed import speed
from helmsman.planner.request import PlanRequest, say_nothing
from helmsman.schemas.errors import InfeasibleError, UsageError
from helmsman.schemas.plan import Plan

MOST_SEQUENCES = 1 << 16
"""Sequences of a batch that are asked about: more than any memory of the catalogue has room for at a useful length."""

Decide = Callable[[PlanRequest[Any]], Decision]


def check_choice(request: PlanRequest[Any]) -> None:
    """Raise UsageError for options that are about one batch, where it is chosen, and for a choice without a measure."""
    for field, word in (("batch", request.batch), ("batches", request.batches)):
        if word is not None:
            _check(request, field, word)


def _check(request: PlanRequest[Any], field: str, word: str) -> None:
    for name in ("table", "write_table", *(("block",) if word == "best" else ())):
        if getattr(request.options, name, None):
            remedy = f"write N, or leave `{name}` out"
            raise UsageError(f"`{name}` is of one batch", field=field, value=word, remedy=remedy)
    if word != "best":
        return
    if request.objective != "throughput":
        remedy = "add `objective` throughput"
        raise UsageError(f"more sequences never gain {request.objective}", field=field, value=word, remedy=remedy)
    risk = getattr(request.options, "risk", "median")
    if risk != "median":
        remedy = f"leave it out, or write N instead of `{field}` {word}"
        raise UsageError("batches are compared by medians", field="risk", value=risk, remedy=remedy)
    if request.batch == "max":
        remedy = "use `batch` best, or write a number of batches"
        raise UsageError("fewer batches have room for more sequences", field=field, value=word, remedy=remedy)


def decide_batches(request: PlanRequest[Any], decide: Decide) -> Decision:
    """Return the decision for the batches that the request asks for, or leaves open. Raises what `decide` raises."""
    if "best" in (request.batch, request.batches):
        return _most_tokens(request, decide)
    return _largest(request, decide) if request.batch == "max" else decide(request)


def _largest(request: PlanRequest[Any], decide: Decide) -> Decision:
    """The decision for the largest batch that fits.

    Begins with what a refusal of far too many says, where it says it. Raises InfeasibleError, as for a batch of one,
    when not even that fits."""
    try:
        return decide(request.sized(batch=MOST_SEQUENCES))
    except InfeasibleError as error:
        known = error.largest_batch or 0
    decisions: dict[int, Decision] = {}

    def fits(batch: int) -> bool:
        try:
            decisions[batch] = decide(request.sized(batch=batch))
        except InfeasibleError:
            return False
        return True

    most = doubling(MOST_SEQUENCES - 1, fits, known)
    return decisions[most] if most in decisions else decide(request.sized(batch=max(most, 1)))


def _most_tokens(request: PlanRequest[Any], decide: Decide) -> Decision:
    """The decision for the best division, with what was considered in its plan.

    Raises InfeasibleError, as for the smallest division, when not even that has a plan."""
    workload, decisions = request.workload, dict[BatchDivision, Decision]()

    def ask(division: BatchDivision) -> DividedPlan | Refusal:
        request.tell(f"{division.batches} x {division.batch}")
        try:
            decisions[division] = decide(replace(request.sized(**division._asdict()), tell=say_nothing))
        except InfeasibleError as error:
            return Refusal(error.largest_batch)
        return _answer(decisions[division].plan, getattr(request.options, "compress", "none") == "none")

    batch = None if request.batch == "best" else workload.batch
    batches = None if request.batches == "best" else workload.batches
    search = BestBatches(ask, workload.output_tokens, batch, batches)
    best = search.best()
    if best is None:
        return decide(request.sized())
    decision = decisions[best]
    return replace(decision, drafted=decision.plan.model_copy(update={"considered": search.considered()}))


def _answer(plan: Plan, proves: bool) -> DividedPlan:
    """Return a plan's tokens/s, and the least seconds of any plan, which its bound `proves` where formats are given."""
    work, together = plan.workload, batches_together(plan)
    least = objective_bound(plan.predicted, work, together, "request") if proves else 0.0
    return DividedPlan(speed(plan).rate.mid, least, together < work.batches)
