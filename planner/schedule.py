"""Durations of a task graph without contention: a lane does its tasks one at a time, in the order of the graph."""

from collections.abc import Callable, Sequence

from helmsman.lowering.graph import Task, TaskGraph
from helmsman.planner.delayed import delayed_makespan
from helmsman.planner.handovers import Handovers
from helmsman.planner.interference import Slowed
from helmsman.planner.works import Works, apart


def makespan(
    graph: TaskGraph, seconds: Callable[[Task], float], slowed: Slowed | None = None, between: Handovers | None = None
) -> float:
    """Seconds from the first start to the last end; for a sequential graph the plain sum. `slowed`: what delays tasks;
    `between`: the time between them.

    The rule of the simulator's replay, so both agree where no memory is contended. Ends are maxima and sums of
    durations, so a longer task never makes the whole shorter, unless some are `slowed`."""
    return works_makespan(apart(graph), [seconds(task) for task in graph.tasks], slowed, between)


def works_makespan(
    works: Works, times: Sequence[float], slowed: Slowed | None = None, between: Handovers | None = None
) -> float:
    """`makespan` where each kind of work takes its one of `times`."""
    if slowed is not None:
        return delayed_makespan(works, times, slowed, None, between)
    free: dict[str, float] = {}
    ends: list[float] = []
    tasks = works.graph.tasks
    for task, kind in zip(tasks, works.kind, strict=True):
        start = free.get(task.resource, 0.0)
        if between is not None and task.resource in free:
            start += between.joins((tasks[dep].resource for dep in task.deps), task.resource)
        for dep in task.deps:
            ready = ends[dep] if between is None else ends[dep] + between.after(tasks[dep].resource, task.resource)
            if ready > start:
                start = ready
        free[task.resource] = end = start + times[kind]
        ends.append(end)
    return max(ends, default=0.0)
