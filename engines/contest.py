"""A contest of an engine's settings: which are faster, by how much, and whether Helm had called it."""

from collections.abc import Callable, Sequence
from pathlib import Path

from helmsman.analysis.ask_settings import request_of_plan
from helmsman.engines.ask_run import RUN_BY, check_engine_run
from helmsman.engines.contestants import contestants
from helmsman.engines.fit_support import check_fit
from helmsman.engines.programs import find_program
from helmsman.engines.rounds import ContestShape, Entrant, run_rounds
from helmsman.engines.sides import llama_side
from helmsman.executor.measuring.host_facts import facts_here
from helmsman.executor.system.machine import Machine
from helmsman.gate.statistics import LEAST_CHANGE, MAX_RUNS, Change, change_between, check_scipy, least_runs
from helmsman.planner.machine import without_loopback
from helmsman.schemas.engine_contest import (
    ContestAbsence,
    ContestCall,
    ContestSide,
    ContestVerdict,
    EngineContest,
    OwnChoice,
    Pace,
)
from helmsman.schemas.errors import InfeasibleError, UsageError
from helmsman.schemas.figures import DISTURBED
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import digest
from helmsman.this_machine import this_machine


def referee(
    plan: Plan,
    checkpoint: Path,
    *,
    engine: str = RUN_BY,
    python: Path | None = None,
    runs: int = 7,
    own_choice: OwnChoice = "default",
    hardware: Hardware | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> EngineContest:
    """Return how a plan's settings fare beside an engine's own choice, its default or its fit, and Helm's second
    choice, each run in a fresh process, in turns, and whether Helm had called it. An own choice whose layers do not fit
    is absent, with the reason.

    `hardware`: for which all are predicted, by default this machine; `tell` hears of every run as it ends. Raises
    UsageError for too few runs and for plans that an engine is not run for, InfeasibleError where nothing is left to
    compare with, HardwareUnavailableError where the engine, its fit, or SciPy, is not there."""
    work = plan.workload
    check_engine_run(plan, checkpoint, engine, work.prompt_tokens, work.output_tokens)
    if not least_runs() <= runs <= MAX_RUNS:
        remedy = f"use {least_runs()} to {MAX_RUNS}: fewer cannot differ significantly"
        raise UsageError("not as many runs", field="runs", value=runs, remedy=remedy)
    check_scipy()
    program = find_program(engine, "tests", python)
    if own_choice == "fit":
        check_fit(program)
    request = request_of_plan(plan, without_loopback(hardware or this_machine()))
    present, absent = contestants(plan, request, RUN_BY, own_choice)
    shape = ContestShape.of(plan)
    sides = [Entrant(one, llama_side(program, one.command, checkpoint, shape.context)) for one in present]
    _check_rivals(sides, absent)
    machine = facts_here(Machine.this())
    rounds = run_rounds(sides, shape.tests, runs, tell)
    absent += rounds.absent
    _check_rivals(rounds.ran, absent)
    calls = tuple(call(shape, rounds.ran[0], rival) for rival in rounds.ran[1:])
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
        sides=tuple(_side(shape, entrant) for entrant in rounds.ran),
        absent=tuple(absent),
        calls=calls,
        others_cpu_share=rounds.others,
        verdict=verdict_of(calls, rounds.others),
    )


def _check_rivals(sides: Sequence[Entrant], absent: Sequence[ContestAbsence]) -> None:
    """Raise InfeasibleError where nothing is left beside the plan's settings."""
    if len(sides) < 2:
        reasons = "; ".join(f"{one.name}: {one.reason}" for one in absent)
        remedy = "compare with `--fit`, or plan for less `context` or a smaller `format`"
        raise InfeasibleError(f"nothing is left to compare the plan's settings with: {reasons}", remedy=remedy)


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
