"""A contest of an engine's settings: which are faster, by how much, and whether Helm had called it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from helmsman.analysis.ask_settings import request_of_plan
from helmsman.engines.ask_run import RUN_BY, check_engine_run
from helmsman.engines.contestants import Contestant, contestants
from helmsman.engines.programs import find_program
from helmsman.engines.sides import EngineSide, llama_side
from helmsman.executor.measuring.bench import Test
from helmsman.executor.measuring.host_facts import facts_here
from helmsman.executor.system.interference import cpu_times, others_share
from helmsman.executor.system.machine import Machine
from helmsman.gate.interleaving import alternating
from helmsman.gate.statistics import LEAST_CHANGE, MAX_RUNS, Change, change_between, check_scipy, least_runs
from helmsman.planner.machine import without_loopback
from helmsman.schemas.engine_contest import ContestCall, ContestSide, ContestVerdict, EngineContest, Pace
from helmsman.schemas.errors import UsageError
from helmsman.schemas.figures import DISTURBED
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import digest
from helmsman.this_machine import this_machine

MOST_STEPS = 32
"""Decode steps that are timed in a run; a request is as many as it has."""


def referee(
    plan: Plan,
    checkpoint: Path,
    *,
    engine: str = RUN_BY,
    python: Path | None = None,
    runs: int = 7,
    hardware: Hardware | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> EngineContest:
    """Return how a plan's settings fare beside an engine's own default and Helm's second choice, each run in a fresh
    process, in turns, and whether Helm had called it.

    `hardware`: for which all are predicted, by default this machine; `tell` hears of every run as it ends. Raises
    UsageError for too few runs and for plans that an engine is not run for, HardwareUnavailableError where the engine,
    or SciPy, is not there."""
    work = plan.workload
    check_engine_run(plan, checkpoint, engine, work.prompt_tokens, work.output_tokens)
    if not least_runs() <= runs <= MAX_RUNS:
        remedy = f"use {least_runs()} to {MAX_RUNS}: fewer cannot differ significantly"
        raise UsageError("not as many runs", field="runs", value=runs, remedy=remedy)
    check_scipy()
    program = find_program(engine, "tests", python)
    request = request_of_plan(plan, without_loopback(hardware or this_machine()))
    present = contestants(plan, request, RUN_BY)
    shape = ContestShape.of(plan)
    sides = [Entrant(one, llama_side(program, one.command, checkpoint, shape.context)) for one in present]
    shares = list[float]()
    machine = facts_here(Machine.this())
    for entrant in alternating(sides, runs):
        before = cpu_times()
        entrant.seconds.append(entrant.side.seconds(shape.tests))
        share = others_share(before, cpu_times())
        shares += [] if share is None else [share]
        tell(entrant.contestant.name)
    others = median(shares) if shares else None
    calls = tuple(call(shape, sides[0], rival) for rival in sides[1:])
    return EngineContest(
        plan=plan.label,
        plan_sha256=digest(plan),
        engine=RUN_BY,
        program=program.title,
        machine=str(machine),
        prompt_tokens=work.prompt_tokens,
        output_tokens=work.output_tokens,
        steps=shape.steps,
        depth=shape.depth,
        runs=runs,
        sides=tuple(_side(shape, entrant) for entrant in sides),
        calls=calls,
        others_cpu_share=others,
        verdict=verdict_of(calls, others),
    )


@dataclass(frozen=True, slots=True)
class ContestShape:
    """The tests that stand for a request: its prompt, and `steps` of its `decode` steps after as many tokens as the
    mean one has before it."""

    prompt: int
    decode: int
    steps: int
    depth: int

    @classmethod
    def of(cls, plan: Plan) -> "ContestShape":
        """Return the tests of a plan's request."""
        work = plan.workload
        steps = min(MOST_STEPS, work.decode_steps)
        return cls(work.prompt_tokens, work.decode_steps, steps, max(1, work.mean_context - steps // 2))

    @property
    def tests(self) -> tuple[Test, ...]:
        """Return the prompt, and the steps where there are any."""
        steps = (Test(0, self.steps, self.depth),) if self.steps else ()
        return (Test(self.prompt, 0, 0), *steps)

    @property
    def context(self) -> int:
        """Return the tokens for which there has to be room."""
        return max(test.context for test in self.tests)

    def request(self, seconds: Sequence[float]) -> float:
        """Return the seconds of a request from those of its tests."""
        return seconds[0] + (seconds[1] / self.steps * self.decode if self.steps else 0.0)


@dataclass(frozen=True)
class Entrant:
    """A contestant with what runs it, and the seconds of every test in each of its runs."""

    contestant: Contestant
    side: EngineSide
    seconds: list[tuple[float, ...]] = field(default_factory=list)

    def requests(self, shape: ContestShape) -> tuple[float, ...]:
        """Return the seconds of a request by run."""
        return tuple(map(shape.request, self.seconds))


def call(shape: ContestShape, own: Entrant, rival: Entrant) -> ContestCall:
    """Return what Helm had called of the plan's settings beside a rival's, and what ran."""
    change = change_between(own.requests(shape), rival.requests(shape))
    mine, its = own.contestant.predicted, rival.contestant.predicted
    predicted = None if mine is None or its is None else its.mid / mine.mid - 1.0
    called = None if predicted is None else pace(predicted, abs(predicted) > LEAST_CHANGE)
    ran = pace(change.relative, change.counts)
    return ContestCall(
        rival=rival.contestant.name,
        predicted=predicted,
        relative=change.relative,
        low=change.low,
        high=change.high,
        p_value=change.p_value,
        noise=change.noise,
        threshold=change.threshold,
        called=called,
        ran=ran,
        right=None if predicted is None else called == ran or _covers(change, predicted),
    )


def pace(relative: float, counts: bool) -> Pace:
    """Return how settings do beside a rival whose requests take longer by `relative`."""
    return "same" if not counts else "faster" if relative > 0.0 else "slower"


def _covers(change: Change, predicted: float) -> bool:
    return change.low <= predicted <= change.high


def verdict_of(calls: Sequence[ContestCall], others: float | None) -> ContestVerdict:
    """Return whether every difference had been called; nobody can tell where `others`, the share of processor time that
    others took, is large."""
    if others is not None and others > DISTURBED:
        return "disturbed"
    return "wrong" if any(one.right is False for one in calls) else "right"


def _side(shape: ContestShape, entrant: Entrant) -> ContestSide:
    steps = tuple(seconds[1] / shape.steps for seconds in entrant.seconds) if shape.steps else ()
    return ContestSide(
        name=entrant.contestant.name,
        settings=entrant.contestant.settings,
        predicted_s=entrant.contestant.predicted,
        unpredicted=entrant.contestant.unpredicted,
        prompt_s=tuple(seconds[0] for seconds in entrant.seconds),
        step_s=steps,
        request_s=entrant.requests(shape),
    )
