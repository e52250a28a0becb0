"""Durations of a task graph without contention: a lane does its tasks one at a time, in the order of the graph."""

from collections.abc import Callable, Sequence

from helmsman.lowering.graph import Task, TaskGraph
from helmsman.planner.delayed import delayed_makespan
from helmsman.planner.interference import Slowed
from helmsman.planner.works import Works, apart


def makespan(graph: TaskGraph, seconds: Callable[[Task], float], slowed: Slowed | None = None) -> float:
    """Seconds from the first start to the last end; for a sequential graph the plain sum. `slowed`: what delays tasks.

    The rule of the simulator's replay, so both agree where no memory is contended. Ends are maxima and sums of
    durations, so a longer task never makes the whole shorter, unless some are `slowed`."""
    return works_makespan(apart(graph), [seconds(task) for task in graph.tasks], slowed)


def works_makespan(works: Works, times: Sequence[float], slowed: Slowed | None = None) -> float:
    """`makespan` where each kind of work takes its one of `times`."""
    if slowed is not None:
        return delayed_makespan(works, times, slowed)
    free: dict[str, float] = {}
    ends: list[float] = []
    for task, kind in zip(works.graph.tasks, works.kind, strict=True):
        start = free.get(task.resource, 0.0)
        for dep in task.deps:
            if ends[dep] > start:
                start = ends[dep]
        free[task.resource] = end = start + times[kind]
        ends.append(end)
    return max(ends, default=0.0)
