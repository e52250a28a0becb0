"""Measured runs: generations with probes beside them, and the Trace they make."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
from numpy.typing import NDArray

from helmsman.executor._kernels import Pool
from helmsman.executor.devices.base import Device
from helmsman.executor.devices.cpu import CpuDevice
from helmsman.executor.devices.opening import Devices
from helmsman.executor.engine import Engine
from helmsman.executor.generation import Generation, Tokens
from helmsman.executor.interference import disturbance, moment, others_share
from helmsman.executor.machine import Machine
from helmsman.executor.passes import name_of
from helmsman.executor.probe import (
    PRODUCT_TOKENS,
    joint_read_rate,
    probe_pieces,
    product_matrices,
)
from helmsman.executor.profile.host import facts_here
from helmsman.executor.recorded import NOT_MOVED, Recorded
from helmsman.executor.sampling import GREEDY, Sampling, chooser
from helmsman.executor.stopping import stop_watch
from helmsman.executor.text import Text
from helmsman.lowering.graph import Task
from helmsman.lowering.lower import lower
from helmsman.lowering.paging import passes_of
from helmsman.lowering.pools import Pools
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import digest
from helmsman.schemas.trace import Probe, Span, Trace, TraceInfo

WARM_UP_TOKENS = 4
TURNS = 3
"""The number of probes before a run, and after it, of which the medians are kept: a single one is 8 % off another."""

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
    run_once(engine, warm_up, lambda _: None)
    prober = _Prober(engine, machine)
    generations: list[Generation] = []
    notes: dict[str, str | int | float] = {"prompt_tokens": request.past + request.tokens.shape[1]}
    notes |= facts_here(machine, prober.pieces).notes
    for run in range(runs):
        prober.probe(run)
        before = moment()
        generations.append(run_once(engine, request, on_token if run == 0 else lambda _: None))
        after = moment()
        notes[f"disturbance.{run}"] = disturbance(before, after)
        share = others_share(before.times, after.times)
        if share is not None:
            notes[f"others_cpu_share.{run}"] = share
        notes[f"overhead_s.{run}"] = float(np.median(generations[-1].overhead_s))
        prober.probe(run)
    return Measured(tuple(generations), tuple(prober.probes), notes | prober.latencies, request.past)


def trace(plan: Plan, measured: Measured) -> Trace:
    """The measured runs as spans with lowering's task ids; of runs on top of a past, which no prompt made, only the
    decode steps, as those of a run that has it in its prompt."""
    before = _prompt_passes(plan, measured) if measured.past else 0
    runs = [_continued(each, before) if before else each for each in measured.runs]
    spans = [span for run, generation in enumerate(runs) for span in spans_of(plan, run, generation)]
    spans = [span for span in spans if span.iteration >= before]
    info = TraceInfo(
        source="measured",
        plan_sha256=digest(plan),
        runs=len(measured.runs),
        probes=measured.probes,
        notes=measured.notes,
    )
    return Trace(info, spans)


def _prompt_passes(plan: Plan, measured: Measured) -> int:
    """Over the past and the prompt, had both been run."""
    work = plan.workload.model_copy(update={"prompt_tokens": measured.notes["prompt_tokens"]})
    return len(passes_of(plan, work).prompt)


def _continued(generation: Generation, prompt_passes: int) -> Generation:
    """Passes numbered as if so many, and not its own, had been over the prompt."""
    more = prompt_passes - generation.prompt_passes
    numbered = tuple(replace(each, index=each.index + more) for each in generation.iterations)
    return replace(generation, iterations=numbered)


def spans_of(plan: Plan, run: int, generation: Generation) -> list[Span]:
    """One span per task of every pass, seconds from the start of the run."""
    times = [_times(each, float(generation.moments[0])) for each in generation.recorded]
    by_pass = {number: found for each in times for number, found in each.items()}
    spans: list[Span] = []
    for number, iteration in enumerate(generation.iterations):
        for task in lower(plan, iteration).tasks:
            start, end, moved = by_pass[number][name_of(task)]
            spans.append(_span(task, run, iteration.index, start, end, moved))
    return spans


def _times(recorded: Recorded, origin: float) -> dict[int, dict[str, tuple[float, float, int]]]:
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


def computed_format(plan: Plan) -> StoredFormat:
    """The format in which most matrices of a plan are used: its last rule covers what none before it does."""
    return plan.residence[-1].used


class _Prober:
    """Probes the devices and lanes of an engine and keeps the results."""

    def __init__(self, engine: Engine, machine: Machine) -> None:
        self._engine = engine
        self.pieces = probe_pieces(machine.cache_bytes)
        self._format = computed_format(engine.plan)
        self._matrices = product_matrices(self._format)
        self._sharing = sharing(engine.plan, engine.devices)
        self.probes: list[Probe] = []
        self.latencies: dict[str, str | int | float] = {}

    def probe(self, run: int) -> None:
        """Keep the medians of a few turns."""
        self.probes += middle([tuple(self._turn(run)) for _ in range(TURNS)])

    def _turn(self, run: int) -> Iterator[Probe]:
        """Each probe once, products last: reads of both devices after products were 3 % faster than after reads, as a
        profile takes them (286 turns on 2 cores of an AMD EPYC, Zen 5)."""
        devices = self._engine.devices.by_name.values()
        for device in devices:
            yield Probe(what="read", name=device.name, run=run, value=device.read_rate(self.pieces))
        for memory, pools in self._sharing.items():
            yield Probe(what="joint", name=memory, run=run, value=joint_read_rate(pools, self.pieces))
        for lane in self._engine.lanes:
            sample = lane.sample()
            yield Probe(what="link", name=lane.name, run=run, value=sample.rate)
            self.latencies[f"latency_s.{lane.name}.{run}"] = sample.latency
        yield from (self._product(device, run) for device in devices)

    def _product(self, device: Device, run: int) -> Probe:
        rate = device.product_rate(self._format, self._matrices)
        return Probe(what="compute", name=device.name, run=run, value=rate, format=self._format, tokens=PRODUCT_TOKENS)


def middle(turns: Sequence[Sequence[Probe]]) -> list[Probe]:
    """Of each probe the median of several turns."""
    return [
        same[0].model_copy(update={"value": median(probe.value for probe in same)}) for same in zip(*turns, strict=True)
    ]


def sharing(plan: Plan, devices: Devices) -> dict[str, list[Pool]]:
    """The threads of devices that read one physical memory, by memory; none of those that have theirs to themselves."""
    pools, readers = Pools(plan.hardware), dict[str, list[Pool]]()
    for device in devices.by_name.values():
        if isinstance(device, CpuDevice):
            readers.setdefault(pools.of_memory(device.memory.name), []).append(device.pool)
    return {memory: threads for memory, threads in readers.items() if len(threads) > 1}
