"""When the next block may begin: the longest path through the tasks of one, however long each takes."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from helmsman.lowering.graph import Task


@dataclass(frozen=True)
class CriticalPath:
    """Tasks of a block whose last operation may be on two sides, `last` by side (host, accelerator), and latencies
    from the host to the accelerator and back; `away`: whether it begins on the accelerator."""

    tasks: tuple[Task, ...]
    last: tuple[tuple[int, ...], tuple[int, ...]]
    latencies: tuple[float, float]
    away: bool

    def at(self, times: Sequence[float], latency: float = 1.0) -> tuple[float, float]:
        """Until all that the last operation made is on the host, and on the accelerator, if tasks take `times` and
        crossing takes so much of its `latency`."""
        ends = finished(self.tasks, times)
        here, there = (max((ends[place] for place in side), default=-inf) for side in self.last)
        into, back = (latency * seconds for seconds in self.latencies)
        return max(here, there + back), max(there, here + into)

    def until(self, times: Sequence[float], latency: float = 1.0) -> tuple[float, float]:
        """From when all is on the host until it is there again, and on the accelerator: where the block begins on the
        other side, by the latency sooner."""
        at_host, at_accelerator = self.at(times, latency)
        into, back = (latency * seconds for seconds in self.latencies)
        return (at_host - back, at_accelerator) if self.away else (at_host, at_accelerator - into)


def finished(tasks: Sequence[Task], times: Sequence[float]) -> list[float]:
    """When each task is done: lanes do theirs in order."""
    free: dict[str, float] = {}
    ends: list[float] = []
    for task, seconds in zip(tasks, times, strict=True):
        start = max((free.get(task.resource, 0.0), *(ends[dep] for dep in task.deps)))
        free[task.resource] = end = start + seconds
        ends.append(end)
    return ends
