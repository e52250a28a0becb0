"""Measured runs: generations with probes beside them, and the Trace they make."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from helmsman.executor.engine import Engine
from helmsman.executor.measuring.host_facts import facts_here
from helmsman.executor.measuring.prober import Prober
from helmsman.executor.passes.generation import Generation, Tokens
from helmsman.executor.passes.pass_times import NOT_MOVED, PassTimes
from helmsman.executor.system.interference import disturbance, moment, others_share
from helmsman.executor.system.machine import Machine
from helmsman.executor.text.sampling import GREEDY, Sampling, chooser
from helmsman.executor.text.stopping import stop_watch
from helmsman.executor.text.tokenizer import Text
from helmsman.lowering.graph import Task
from helmsman.lowering.lower import lower
from helmsman.lowering.paging import passes_of
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import digest
from helmsman.schemas.trace import Probe, Span, Trace, TraceInfo

WARM_UP_TOKENS = 4
MARKED_PASSES = 2
"""Runs before those that are measured, with a device that PyTorch drives: it times operations in two passes."""
TURNS = 3
"""The number of probes before a run, and after it, of which what is usual is kept: a single one is 8 % off another."""

Told = Callable[[Tokens], None]
"""Gets the (sequences,) tokens of every pass that makes some."""


@dataclass(frozen=True)
class Measured:
    """Runs of one prompt, the probes beside them, and notes on each; `past`: tokens that were taken to be cached before
    the prompt."""

    runs: tuple[Generation, ...]
    probes: tuple[Probe, ...]
    notes: dict[str, str | int | float]
    past: int = 0


@dataclass(frozen=True)
class Request:
    """What is run: `tokens` (batch, prompt), continued as `sampling` says, up to one of the texts `stops`; as if `past`
    tokens were cached before them."""

    tokens: NDArray[np.int32]
    output_tokens: int
    ignore_eos: bool = False
    sampling: Sampling = GREEDY
    seed: int = 0
    text: Text | None = None
    stops: tuple[str, ...] = ()
    past: int = 0


def run_once(engine: Engine, request: Request, on_token: Told) -> Generation:
    """One run without probes or warm-up."""
    if request.past:
        engine.assume(request.past)
    ended = stop_watch(request.text, request.stops, len(request.tokens))

    def told(chosen: NDArray[np.int32]) -> NDArray[np.bool_] | None:
        on_token(chosen)
        return ended(chosen)

    choose = chooser(request.sampling, (request.seed,), request.tokens)
    return engine.generate(
        request.tokens,
        request.output_tokens,
        past=request.past,
        choose=choose,
        on_token=told,
        ignore_eos=request.ignore_eos,
    )


def measure(engine: Engine, request: Request, runs: int, machine: Machine, on_token: Told = lambda _: None) -> Measured:
    """`runs` runs after a short warm-up, each between two probes of every device (reading, products) and lane.

    Tokens of the first run go to `on_token`."""
    for device in engine.devices.by_name.values():
        device.time_operations(timed=True)
    few = min(WARM_UP_TOKENS, request.output_tokens)
    warm_up = Request(request.tokens, few, ignore_eos=True, past=request.past)
    for _ in range(MARKED_PASSES if engine.devices.accelerators.devices else 1):
        run_once(engine, warm_up, lambda _: None)
    prober, probes = Prober(engine.plan, machine), list[Probe]()
    generations: list[Generation] = []
    notes: dict[str, str | int | float] = {"prompt_tokens": request.past + request.tokens.shape[1]}
    notes |= facts_here(machine, next(iter(prober.pieces(engine.devices).values()))).notes
    for run in range(runs):
        probes += prober.probe(engine.devices, run, TURNS)
        before = moment()
        generations.append(run_once(engine, request, on_token if run == 0 else lambda _: None))
        after = moment()
        notes[f"disturbance.{run}"] = disturbance(before, after)
        share = others_share(before.times, after.times)
        if share is not None:
            notes[f"others_cpu_share.{run}"] = share
        drafts = generations[-1].drafts
        if drafts is not None:
            notes |= {f"drafted.{run}": drafts.drafted, f"accepted.{run}": drafts.accepted}
        notes[f"overhead_s.{run}"] = float(np.median(generations[-1].overhead_s))
        probes += prober.probe(engine.devices, run, TURNS)
    return Measured(tuple(generations), tuple(probes), notes | prober.latencies, request.past)


def trace(plan: Plan, measured: Measured) -> Trace:
    """The measured runs as spans with lowering's task ids; of runs on top of a past, which no prompt made, only the
    decode steps, as those of a run that has it in its prompt."""
    before = _prompt_passes(plan, measured) if measured.past else 0
    runs = [_continued(run, before) if before else run for run in measured.runs]
    spans = [span for run, generation in enumerate(runs) for span in spans_of(plan, run, generation)]
    spans = [span for span in spans if span.iteration >= before]
    info = TraceInfo(
        source="measured",
        plan_sha256=digest(plan),
        runs=len(measured.runs),
        probes=measured.probes,
        notes=measured.notes,
        expert_cache=tuple(
            counts.model_copy(update={"run": run})
            for run, generation in enumerate(measured.runs)
            for counts in generation.expert_cache
        ),
    )
    return Trace(info, spans)


def _prompt_passes(plan: Plan, measured: Measured) -> int:
    """Over the past and the prompt, had both been run."""
    work = plan.workload.model_copy(update={"prompt_tokens": measured.notes["prompt_tokens"]})
    return len(passes_of(plan, work).prompt)


def _continued(generation: Generation, prompt_passes: int) -> Generation:
    """Passes numbered as if so many, and not its own, had been over the prompt."""
    more = prompt_passes - generation.prompt_passes
    numbered = tuple(replace(iteration, index=iteration.index + more) for iteration in generation.iterations)
    return replace(generation, iterations=numbered)


def spans_of(plan: Plan, run: int, generation: Generation) -> list[Span]:
    """One span per task of every pass, seconds from the start of the run."""
    return [
        _span(task, run, iteration.index, *times)
        for iteration, tasks in timed_passes(plan, generation)
        for task, times in tasks
    ]


def timed_passes(
    plan: Plan, generation: Generation
) -> Iterator[tuple[Iteration, list[tuple[Task, tuple[float, float, int]]]]]:
    """Every pass of a run, with its tasks in lowering's order: start and end of each in seconds from the start of the
    run, and the bytes that it moved (`NOT_MOVED`: as planned)."""
    times = [_times(record, float(generation.moments[0])) for record in generation.recorded]
    by_pass = {number: tasks for time in times for number, tasks in time.items()}
    for number, iteration in enumerate(generation.iterations):
        yield iteration, [(task, by_pass[number][task.name]) for task in lower(plan, iteration).tasks]


def _times(recorded: PassTimes, origin: float) -> dict[int, dict[str, tuple[float, float, int]]]:
    """By pass, (start, end, bytes moved) of every task."""
    rows = zip(
        (recorded.starts - origin).tolist(), (recorded.ends - origin).tolist(), recorded.moved.tolist(), strict=True
    )
    return {
        number: dict(zip(recorded.tasks, zip(*row, strict=True), strict=True))
        for number, row in zip(recorded.passes.tolist(), rows, strict=True)
    }


def _span(task: Task, run: int, iteration: int, start: float, end: float, moved: int) -> Span:
    """Bytes are what was moved where the executor knows better than the plan: hidden states are f32."""
    return Span(
        run=run,
        source="measured",
        task=task.id,
        iteration=iteration,
        request=0,
        phase=task.phase,
        layer=-1 if task.layer is None else task.layer,
        op=task.op,
        resource=task.resource,
        start_s=start,
        end_s=end,
        bytes=task.bytes if moved == NOT_MOVED else moved,
        flops=float(task.flops),
    )
