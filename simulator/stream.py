"""One request stream of a plan: prefill, then decode steps one after the other (HELM-56, HELM-57)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from helmsman.lowering.graph import Task
from helmsman.lowering.lower import lower, lower_runs, lower_tasks
from helmsman.lowering.paging import Passes, passes_of
from helmsman.lowering.placement import Placed
from helmsman.planner.cost.model import work_of
from helmsman.planner.prediction.prompt_passes import weighted_passes
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.hardware import lane_owner
from helmsman.schemas.trace import Span
from helmsman.simulator.breakdown import ROWS, Breakdown, BreakdownSum
from helmsman.simulator.curve import StepCurve, chosen_steps
from helmsman.simulator.overlap import FIELDS, OverlapShares
from helmsman.simulator.replay import Price, Summary, replay, replay_stream, spans
from helmsman.timing.handovers import Handovers
from helmsman.timing.interference import Slowed
from helmsman.timing.works import alike, apart

Progress = Callable[[Sequence[int]], Iterable[int]]

_Total = Callable[[Iterable[float]], float]
"""The sum over all passes of a phase of what is known of some."""


@dataclass(frozen=True, slots=True)
class LaneUse:
    """The use of one resource in a phase: seconds at work, seconds idle, bytes it moved or streamed."""

    resource: str
    busy: float
    idle: float
    bytes: int


@dataclass(frozen=True, slots=True)
class StreamPhase:
    """A phase of a stream: its seconds, its lanes, the seconds in which two or more lanes worked, what worked, and on
    what."""

    seconds: float
    overlap: float
    lanes: tuple[LaneUse, ...]
    shares: OverlapShares
    rows: Breakdown


@dataclass(frozen=True, slots=True)
class _ReplayedPass:
    """A replayed iteration."""

    summary: Summary
    rows: Breakdown


@dataclass(frozen=True, slots=True)
class Stream:
    """One batch, or all that advance together, from prompt to last token; times in seconds.

    `tpot` = (e2e - ttft) / (n - 1) and `itl` (quantiles of single steps) are None for n = 1 output token.
    `decode_rate`, `rate`: tokens/s of all sequences, in decode and from the start of the prompt.
    `simulated`: decode steps that were replayed; those between are linear in the context."""

    ttft: float
    tpot: float | None
    itl: dict[str, float] | None
    e2e: float
    decode_rate: float | None
    rate: float
    prefill: StreamPhase
    decode: StreamPhase
    steps: int
    simulated: tuple[int, ...]


QUANTILES = {"p10": 0.1, "p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}


def simulate(
    plan: Placed, price: Price, between: Handovers, progress: Progress = iter, slowed: Slowed | None = None
) -> Stream:
    """Replay the stream of `plan.workload`; batches that do not advance together repeat the same times.

    Every decode step is replayed when there are at most 64, else 33 of them, and those between are linear
    in the context: the cost grows with the graph, not with the number of tokens. Of a prompt in many passes those of
    `planner.prediction.prompt_passes` are. `between`: the time between tasks and passes under the plan's cost model;
    `progress` sees every step go by; `slowed` is that of `replay`."""
    workload, passes = plan.workload, passes_of(plan)
    steps, together = chosen_steps(workload.decode_steps, workload.prompt_tokens), passes.batches
    prompt = _prompt(plan, passes, price, between, slowed)
    done = [_replayed(plan, price, between, slowed, passes.step(step)) for step in progress(steps)]
    ttft = prompt.seconds
    decoding = _phase(plan, done, lambda values: StepCurve(steps, tuple(values)).total())
    e2e = ttft + decoding.seconds
    itl = StepCurve(steps, tuple(step.summary.makespan for step in done)) if done else None
    return Stream(
        ttft=ttft,
        tpot=decoding.seconds / workload.decode_steps if done else None,
        itl={name: itl.quantile(q) for name, q in QUANTILES.items()} if itl else None,
        e2e=e2e,
        decode_rate=_rate(together * workload.batch * workload.decode_steps, decoding.seconds) if done else None,
        rate=_rate(together * workload.batch * workload.output_tokens, e2e),
        prefill=prompt,
        decode=decoding,
        steps=workload.decode_steps,
        simulated=steps,
    )


def timeline(
    plan: Placed, price: Price, between: Handovers, steps: int, slowed: Slowed | None = None
) -> Iterator[Span]:
    """Yield the spans of prefill and of the first `steps` decode steps, on one time axis."""
    offset, passes = 0.0, passes_of(plan)
    for iteration in passes.all[: len(passes.prompt) + steps]:
        graph = lower(plan, iteration)
        done = replay(graph, price, plan.hardware, slowed, between)
        offset += between.begins(apart(graph))
        yield from spans(done, offset=offset)
        offset += done.makespan


def remembering(price: Price) -> Price:
    """`price`, asked once for all tasks that do the same work in different places of the graph."""
    known: dict[tuple[object, ...], float] = {}

    def remembered(task: Task) -> float:
        key = work_of(task)
        result = known.get(key)
        if result is None:
            result = known[key] = price(task)
        return result

    return remembered


def _prompt(plan: Placed, passes: Passes, price: Price, between: Handovers, slowed: Slowed | None) -> StreamPhase:
    looked = weighted_passes(plan, passes)
    done = [_replayed(plan, price, between, slowed, one_pass) for one_pass, _ in looked]
    return _phase(plan, done, lambda values: sum(w * value for (_, w), value in zip(looked, values, strict=True)))


def _replayed(
    plan: Placed, price: Price, between: Handovers, slowed: Slowed | None, iteration: Iteration
) -> _ReplayedPass:
    rows = BreakdownSum(plan.hardware)
    tasks = lower_tasks(plan, iteration)
    summary = replay_stream(tasks, price, plan.hardware, rows.add, slowed=slowed, between=between)
    if between.hardware.between_passes is not None:
        summary = summary.later(between.begins(alike(lower_runs(plan, iteration), work_of)))
    return _ReplayedPass(summary, rows.breakdown(summary.shares))


def _rate(tokens: int, seconds: float) -> float:
    """Return tokens per second; 0 when time does not pass, as with prices of zero."""
    return tokens / seconds if seconds > 0.0 else 0.0


def _phase(plan: Placed, passes: list[_ReplayedPass], total: _Total) -> StreamPhase:
    """Return the phase of which `passes` were replayed."""
    if not passes:
        return StreamPhase(0.0, 0.0, (), OverlapShares(), Breakdown())
    done = [one_pass.summary for one_pass in passes]
    seconds = total(step.makespan for step in done)
    lanes = []
    for lane in _lanes(plan, done):
        busy = total(step.busy.get(lane, 0.0) for step in done)
        moved = total(step.moved.get(lane, 0) for step in done)
        lanes.append(LaneUse(lane, busy, max(0.0, seconds - busy), round(moved)))
    shares = {name: total(getattr(step.shares, name) for step in done) for name in FIELDS}
    rows = {name: total(getattr(one_pass.rows, name) for one_pass in passes) for name in ROWS}
    overlap = total(step.overlap for step in done)
    return StreamPhase(seconds, overlap, tuple(lanes), OverlapShares(**shares), Breakdown(**rows))


def _lanes(plan: Placed, done: list[Summary]) -> list[str]:
    """Return the lanes in use: devices, then links, as the hardware lists them."""
    used = sorted({lane for step in done for lane in step.busy})
    listed = [device.name for device in plan.hardware.devices] + [link.name for link in plan.hardware.links]
    return [lane for owner in listed for lane in used if lane_owner(lane) == owner]
