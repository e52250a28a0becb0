"""Durations of a task graph without contention: lanes run their tasks in graph order, one at a time."""

from collections.abc import Callable

from helmsman.lowering.graph import Task, TaskGraph


def makespan(graph: TaskGraph, seconds: Callable[[Task], float]) -> float:
    """Seconds from the first start to the last end; for a sequential graph the plain sum."""
    ends: list[float] = []
    free: dict[str, float] = {}
    for task in graph.tasks:
        start = max([free.get(task.resource, 0.0), *(ends[dep] for dep in task.deps)])
        end = start + seconds(task)
        free[task.resource] = end
        ends.append(end)
    return max(ends, default=0.0)
