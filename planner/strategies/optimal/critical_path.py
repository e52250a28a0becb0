"""When the next block may begin: the longest path through the tasks of one, however long each takes."""

from collections.abc import Sequence
from dataclasses import dataclass

from helmsman.lowering.graph import Task


@dataclass(frozen=True)
class Crossed:
    """Tasks of a block whose last operation may be on two sides, `last` by side (host, accelerator), and latencies
    from the host to the accelerator and back."""

    tasks: tuple[Task, ...]
    last: tuple[tuple[int, ...], tuple[int, ...]]
    latencies: tuple[float, float]

    def seconds(self, times: Sequence[float], latency: float = 1.0) -> float:
        """Until all that the last operation made is on one side, where the next block begins, if tasks take `times` and
        crossing takes so much of its `latency`."""
        ends = _ends(self.tasks, times)
        done = [max((ends[place] for place in side), default=0.0) for side in self.last]
        if not all(self.last):
            return max(done)
        (into, back), (here, there) = self.latencies, done
        return min(max(there, here + latency * into), max(here, there + latency * back))

    def makespan(self, times: Sequence[float]) -> float:
        """Until all tasks are done."""
        return max(_ends(self.tasks, times), default=0.0)


def _ends(tasks: Sequence[Task], times: Sequence[float]) -> list[float]:
    """When each task is done: lanes do theirs in order."""
    free: dict[str, float] = {}
    ends: list[float] = []
    for task, seconds in zip(tasks, times, strict=True):
        start = max((free.get(task.resource, 0.0), *(ends[dep] for dep in task.deps)))
        free[task.resource] = end = start + seconds
        ends.append(end)
    return ends
