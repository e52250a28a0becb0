"""An answer to a question: planned, then simulated; prefill and generation apart (PARK-60)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.park_egger.question import Method, Question, strategy
from helmsman.lowering.lower import lower_tasks
from helmsman.lowering.placement import batches_together
from helmsman.planner.cost.plan_costs import cost_model
from helmsman.planner.strategies.flexgen import FlexGen
from helmsman.planner.strategies.op_split.strategy import OpSplit
from helmsman.scheduler.iteration import Iteration, decode, prefill
from helmsman.schemas.errors import InfeasibleError
from helmsman.schemas.plan import Plan
from helmsman.simulator.curve import StepCurve
from helmsman.simulator.overlap import OverlapShares
from helmsman.simulator.replay import Summary, replay_stream
from helmsman.simulator.stream import remembering

Value = str | float | int | bool | None
Row = dict[str, Value]


@dataclass(frozen=True, slots=True)
class Run:
    """A simulated answer: seconds of the prompt pass and of all later tokens; tokens/s of both together.

    `shares`: what worked at the same time in the decode step in the middle."""

    label: str
    prefill: float
    generation: float
    tokens: int
    shares: OverlapShares

    @property
    def seconds(self) -> float:
        """From the start of the prompt to the last token."""
        return self.prefill + self.generation

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds


@dataclass(frozen=True, slots=True)
class Lacks:
    """There is no plan that fits; what it would need."""

    what: str


def answer(asked: Question, method: Method) -> Run | Lacks:
    """The plan of `method`, replayed."""
    return answered(strategy(asked, method))


def answered(chosen: OpSplit | FlexGen) -> Run | Lacks:
    """The plan that a strategy decides on, replayed."""
    try:
        plan = chosen.decide({}).plan
    except InfeasibleError as error:
        return Lacks(error.remedy or str(error))
    return run(plan)


def run(plan: Plan) -> Run:
    """The first, the middle and the last decode step are replayed; steps between are linear in the context."""
    work, replayed, together = plan.workload, _replays(plan), batches_together(plan)
    count = work.decode_steps
    steps = tuple(sorted({1, (count + 1) // 2, count}))
    done = [replayed(decode(work, step, together)) for step in steps]
    return Run(
        label=plan.label,
        prefill=replayed(prefill(work, together)).makespan,
        generation=StepCurve(steps, tuple(step.makespan for step in done)).total(),
        tokens=together * work.batch * work.output_tokens,
        shares=done[len(done) // 2].shares,
    )


def row(asked: Question, method: str, found: Run | Lacks) -> Row:
    """The answer as a line of a table; what does not fit is empty and says what it lacks (PARK-61)."""
    head: Row = {
        "model": asked.model,
        "shape": asked.shape,
        "compressed": asked.compressed,
        "output": asked.output,
        "method": method,
    }
    if isinstance(found, Lacks):
        return {**head, "tokens/s": None, "prefill s": None, "generation s": None, "plan": "", "lacks": found.what}
    times = {"tokens/s": found.rate, "prefill s": found.prefill, "generation s": found.generation}
    return {**head, **times, "plan": found.label, "lacks": ""}


def rows(questions: Iterator[Question], methods: tuple[Method, ...]) -> Iterator[Row]:
    """Every question answered by every method."""
    for asked in questions:
        for method in methods:
            yield row(asked, method, answer(asked, method))


def _replays(plan: Plan) -> Callable[[Iteration], Summary]:
    """Replays of one pass, with the plan's prices, what busy links delay and the time between tasks."""
    costs = cost_model(plan)
    price, slowed, between = remembering(lambda task: costs.price(task).mid), costs.slowed(), costs.between()

    def replayed(iteration: Iteration) -> Summary:
        tasks = lower_tasks(plan, iteration)
        return replay_stream(tasks, price, plan.hardware, slowed=slowed, between=between)

    return replayed
