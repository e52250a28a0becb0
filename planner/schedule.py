"""Durations of a task graph without contention: a lane does its tasks one at a time, in the order of the graph."""

from collections.abc import Callable

from helmsman.lowering.graph import Task, TaskGraph
from helmsman.planner.delayed import delayed_makespan
from helmsman.planner.interference import Slowed


def makespan(graph: TaskGraph, seconds: Callable[[Task], float], slowed: Slowed | None = None) -> float:
    """Seconds from the first start to the last end; for a sequential graph the plain sum. `slowed`: what delays tasks.

    The rule of the simulator's replay, so both agree where no memory is contended. Ends are maxima and sums of
    durations, so a longer task never makes the whole shorter, unless some are `slowed`."""
    if slowed is not None:
        return delayed_makespan(graph, seconds, slowed)
    free: dict[str, float] = {}
    ends: list[float] = []
    for task in graph.tasks:
        start = max((ends[dep] for dep in task.deps), default=0.0)
        end = max(start, free.get(task.resource, 0.0)) + seconds(task)
        free[task.resource] = end
        ends.append(end)
    return max(ends, default=0.0)
