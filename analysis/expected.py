"""What a plan leads to expect of every pass in a Trace: the price of each task, and its simulated span."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from helmsman.lowering.graph import TaskGraph
from helmsman.lowering.lower import lower
from helmsman.planner.costs import CostModel, Estimate
from helmsman.scheduler.iteration import decode, prefill
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import digest
from helmsman.schemas.trace import SourceKind, Span, Trace
from helmsman.schemas.workload import Workload
from helmsman.simulator.replay import replay, spans


@dataclass(frozen=True, slots=True)
class Expected:
    """One pass: its tasks, `estimates` by task id, and the spans of its simulation."""

    graph: TaskGraph
    estimates: dict[str, Estimate]
    simulated: tuple[Span, ...]


def check_belongs(plan: Plan, trace: Trace, source: SourceKind, file: str) -> None:
    """Raises BadInputError when `trace` is of another plan, of another source, or empty."""
    if trace.info.plan_sha256 != digest(plan):
        raise BadInputError(
            "a Trace of another plan",
            file=file,
            field="plan_sha256",
            value=trace.info.plan_sha256,
            remedy="give the plan that was run",
        )
    if trace.info.source != source:
        raise BadInputError(f"not a {source} Trace", file=file, field="source", value=trace.info.source)
    if not trace.spans:
        raise BadInputError("the Trace has no spans", file=file)


def workload_of(plan: Plan, measured: Trace, file: str) -> Workload:
    """The plan's workload with the prompt that was really run, as the Trace's notes say.

    Raises BadInputError when prompt or passes do not fit the plan's context."""
    prompt = measured.info.notes.get("prompt_tokens", plan.workload.prompt_tokens)
    context = plan.workload.context
    if not isinstance(prompt, int) or not 1 <= prompt <= context:
        raise BadInputError("not a prompt of this plan", file=file, field="notes.prompt_tokens", value=prompt)
    for span in measured.spans:
        if not 0 <= span.iteration <= context - prompt:
            raise BadInputError("beyond the plan's context", file=file, field="iteration", value=span.iteration)
    return plan.workload.model_copy(update={"prompt_tokens": prompt})


def expect(
    plan: Plan, workload: Workload, costs: CostModel, iterations: Iterable[int], simulated: Sequence[Span]
) -> dict[int, Expected]:
    """The expectation of each of `iterations` (0 is prefill); those not in `simulated` are replayed."""
    given: dict[int, list[Span]] = {}
    for span in simulated:
        given.setdefault(span.iteration, []).append(span)
    return {i: _expect(plan, workload, costs, i, given.get(i)) for i in iterations}


def _expect(plan: Plan, workload: Workload, costs: CostModel, index: int, given: Sequence[Span] | None) -> Expected:
    graph = lower(plan, decode(workload, index) if index else prefill(workload))
    estimates = {task.id: costs.price(task) for task in graph.tasks}
    if given is None:
        given = spans(replay(graph, lambda task: estimates[task.id].mid, plan.hardware))
    return Expected(graph, estimates, tuple(given))
