"""The expectations that a plan has of every pass in a Trace: the price of each task, and its simulation."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from helmsman.analysis.simulated_pass import SimulatedPass, Simulator, from_spans
from helmsman.analysis.steps import DecodeSteps
from helmsman.lowering.graph import Task, TaskGraph
from helmsman.lowering.lower import lower
from helmsman.lowering.paging import passes_of
from helmsman.planner.cost.estimate import Estimate
from helmsman.planner.cost.model import CostModel
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import is_digest
from helmsman.schemas.trace import WHOLE_PASS, SourceKind, Span, Trace
from helmsman.schemas.workload import Workload
from helmsman.simulator.stream import Progress
from helmsman.timing.handovers import Handovers
from helmsman.timing.makespan import makespan
from helmsman.timing.pools import Pools
from helmsman.timing.works import apart


@dataclass(frozen=True, slots=True)
class ExpectedPass:
    """One pass: its tasks, `estimates` by task id of what prices them, its simulation, and the time between tasks."""

    graph: TaskGraph
    costs: CostModel
    estimates: dict[str, Estimate]
    simulated: SimulatedPass
    between: Handovers

    def schedule(self, seconds: Callable[[Task, Estimate], float], machine: Hardware | None = None) -> float:
        """Return seconds of the whole pass when each task alone takes `seconds`, as the plan's prediction; on
        `machine`, if its memories are not those of the record."""
        begins = self.between.begins(apart(self.graph))
        if self.simulated.in_turn:
            return begins + sum(seconds(task, self.estimates[task.id]) for task in self.graph.tasks)

        def price(task: Task) -> float:
            return seconds(task, self.estimates[task.id])

        machine = machine or self.costs.hardware
        return begins + makespan(self.graph, price, Pools(machine), self.costs.slowed_on(machine), self.between)


def check_belongs(plan: Plan, trace: Trace, source: SourceKind, file: str) -> None:
    """Raises BadInputError when `trace` is of another plan, of another source, or empty."""
    if not is_digest(trace.info.plan_sha256, plan):
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
    """Return the plan's workload with the prompt that was really run, as the Trace's notes say.

    Raises BadInputError when prompt or passes do not fit the plan's context."""
    prompt = measured.info.notes.get("prompt_tokens", plan.workload.prompt_tokens)
    context = plan.workload.context
    if not isinstance(prompt, int) or not 1 <= prompt <= context:
        raise BadInputError("not a prompt of this plan", file=file, field="notes.prompt_tokens", value=prompt)
    workload = plan.workload.model_copy(update={"prompt_tokens": prompt})
    last = len(passes_of(plan, workload).prompt) - 1 + context - prompt
    for span in measured.spans:
        if not 0 <= span.iteration <= last:
            raise BadInputError("beyond the plan's context", file=file, field="iteration", value=span.iteration)
    return workload


def check_tasks(spans: Sequence[Span], expected: Mapping[int, ExpectedPass], file: str) -> None:
    """Every pass executes every task of the plan once, and nothing else; or it is one span. Raises BadInputError."""
    counts = Counter((span.run, span.iteration, span.task) for span in spans if span.op != WHOLE_PASS)
    passes = dict.fromkeys((run, iteration) for run, iteration, _ in counts)
    missing = [task for run, i in passes for task in expected[i].estimates if (run, i, task) not in counts]
    unknown = [task for _, i, task in counts if task not in expected[i].estimates]
    repeated = [task for (_, _, task), count in counts.items() if count > 1]
    parted = Counter((span.run, span.iteration) for span in spans)
    whole = [span for span in spans if span.op == WHOLE_PASS]
    repeated += [span.task for span in whole if parted[span.run, span.iteration] > 1]
    faults = ((missing, "not executed"), (unknown, "not in the plan"), (repeated, "executed twice in a pass"))
    differences = [f"{len(tasks)} {fault}, the first {tasks[0]!r:.80}" for tasks, fault in faults if tasks]
    if differences:
        message = f"tasks of the Trace and of the plan differ: {', '.join(differences)}"
        raise BadInputError(message, file=file, field="task", remedy="write the Trace again from this plan")


def expect(
    plan: Plan,
    workload: Workload,
    costs: CostModel,
    iterations: Sequence[int],
    simulated: Sequence[Span] = (),
    progress: Progress = iter,
) -> dict[int, ExpectedPass]:
    """Return the expectation of each of `iterations` (the first are prefill); those not in `simulated` are replayed.

    `progress` sees the iterations go by."""
    given: dict[int, list[Span]] = {}
    for span in simulated:
        given.setdefault(span.iteration, []).append(span)
    slowed, between = costs.slowed(), costs.between()
    steps, simulator = DecodeSteps(plan, workload, costs), Simulator(plan.hardware, slowed, between)
    prompt = passes_of(plan, workload).prompt
    result = {}
    for i in progress(iterations):
        mine = given.get(i)
        if i >= len(prompt):
            graph = steps.graph(i - len(prompt) + 1)
            result[i] = _expected(graph, costs, steps.estimates(graph), simulator, mine)
        else:
            graph = lower(plan, prompt[i])
            estimates = {task.id: costs.price(task) for task in graph.tasks}
            result[i] = _expected(graph, costs, estimates, Simulator(plan.hardware, slowed, between), mine)
    return result


def _expected(
    graph: TaskGraph,
    costs: CostModel,
    estimates: dict[str, Estimate],
    simulator: Simulator,
    given: Sequence[Span] | None,
) -> ExpectedPass:
    if given is None:
        simulated = simulator.simulate(graph, lambda task: estimates[task.id].mid)
    else:
        held = sum(simulator.between.thread.seconds(task, estimates[task.id].mid) for task in graph.tasks)
        simulated = from_spans(given, simulator.between.begins(apart(graph)), held)
    return ExpectedPass(graph, costs, estimates, simulated, simulator.between)
