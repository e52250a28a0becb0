"""Measures the overheads of a GPU: the seconds of operations, copies and hand-overs beside bytes and arithmetic.

The executor runs a model of small matrices all on the GPU, and with single operations there and all others on the host
(`between_passes`). The times that it records tell the overhead of an operation, and what crossing the link adds."""

from collections.abc import Mapping, Sequence
from statistics import fmean, median

from helmsman.executor.measuring.measure import timed_passes
from helmsman.executor.passes.generation import Generation
from helmsman.executor.profile.samples import GpuSteps
from helmsman.lowering.graph import Task
from helmsman.planner.cost.model import CostModel
from helmsman.schemas.hardware import Hardware, OverheadKind, lane_owner
from helmsman.schemas.plan import Plan

KINDS: tuple[OverheadKind, ...] = ("lookup", "norm", "append", "linear", "attention")

_Times = tuple[float, float, int]


def gpu_steps(alone: Plan, divided: Plan, on_gpu: Sequence[Generation], on_both: Generation, settled: int) -> GpuSteps:
    """Return the samples of runs of `alone`, a plan of the GPU alone, and of one run of `divided`, a plan of GPU and
    host; the first `settled` decode steps of a run do not count."""
    steps, seconds, costs = GpuSteps(), dict[str, list[float]](), CostModel(alone.hardware)
    prompts = list[tuple[float, list[Task]]]()
    for run in on_gpu:
        for iteration, tasks in timed_passes(alone, run):
            own = [(task, end - start) for task, (start, end, _) in tasks if task.kind != "transfer"]
            if iteration.phase == "prefill":
                prompts.append((sum(spent for _, spent in own), [task for task, _ in own]))
            elif iteration.index > settled:
                _add_overheads(own, costs, steps)
                for task, spent in own:
                    seconds.setdefault(task.op, []).append(spent)
    usual = {op: median(spent) for op, spent in seconds.items()}
    beside = {kind: median(spent) for kind, spent in steps.overheads.items()}
    for whole, own_tasks in prompts:
        priced = sum(beside[kind] for kind in KINDS for task in own_tasks if task.kind == kind)
        steps.prompt.append(max(0.0, whole - priced) / len(own_tasks))
    for iteration, tasks in timed_passes(divided, on_both):
        if iteration.phase == "decode" and iteration.index > settled:
            _add_crossings(divided.hardware, tasks, usual, steps)
    return steps


def _add_overheads(own: Sequence[tuple[Task, float]], costs: CostModel, steps: GpuSteps) -> None:
    """Add to `steps`, for every kind of operation, the mean seconds of a decode step that one took beyond its price.
    The head is left out: it reads more than all else."""
    for kind in KINDS:
        beyond = [spent - costs.price(task).mid for task, spent in own if task.kind == kind and task.op != "head"]
        steps.overheads.setdefault(kind, []).append(max(0.0, fmean(beyond)))


def _add_crossings(
    hardware: Hardware, tasks: Sequence[tuple[Task, _Times]], usual: Mapping[str, float], steps: GpuSteps
) -> None:
    """Add to `steps` the overhead of every copy of a decode step, counted from the end of the task that it follows, and
    the hand-over to every task that waits for a copy."""
    links, kinds = (
        {link.name: link for link in hardware.links},
        {device.name: device.kind for device in hardware.devices},
    )
    ends = [end for _, (_, end, _) in tasks]
    for task, (start, end, _) in tasks:
        if not task.deps:
            continue
        last = max(task.deps, key=lambda dep: ends[dep])
        lane = lane_owner(task.resource)
        if task.kind == "transfer":
            link = links[lane]
            nominal = link.latency.value + task.bytes / link.bandwidth.value
            steps.copy.setdefault(lane, []).append(max(0.0, end - ends[last] - nominal))
        elif tasks[last][0].kind == "transfer":
            more = max(0.0, end - start - usual[task.op]) if kinds[lane] == "cuda" else 0.0
            if more:
                steps.start.append(more)
            crossed = lane_owner(tasks[last][0].resource)
            steps.handover.setdefault(crossed, []).append(max(0.0, start - ends[last]) + more)
