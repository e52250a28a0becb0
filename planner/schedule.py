"""Durations of a task graph without contention: each lane runs its ready tasks in graph order, one at a time."""

from collections.abc import Callable
from heapq import heappop, heappush

from helmsman.lowering.graph import Task, TaskGraph


def makespan(graph: TaskGraph, seconds: Callable[[Task], float]) -> float:
    """Seconds from the first start to the last end; for a sequential graph the plain sum.

    The order of the simulator's replay, so both agree where no memory is contended."""
    run = _Lanes(graph)
    ends: list[tuple[float, int]] = []
    now = 0.0
    while True:
        for index in run.startable():
            heappush(ends, (now + seconds(graph.tasks[index]), index))
        if not ends:
            return now
        now, index = heappop(ends)
        run.finish(index)
        while ends and ends[0][0] == now:
            run.finish(heappop(ends)[1])


class _Lanes:
    """What may start: tasks whose dependencies are done, on lanes that are free."""

    def __init__(self, graph: TaskGraph) -> None:
        self.tasks = graph.tasks
        self.missing = [len(set(task.deps)) for task in graph.tasks]
        self.users: list[list[int]] = [[] for _ in graph.tasks]
        self.ready: dict[str, list[int]] = {}
        self.busy: set[str] = set()
        for index, task in enumerate(graph.tasks):
            for dep in set(task.deps):
                self.users[dep].append(index)
            if not task.deps:
                heappush(self.ready.setdefault(task.resource, []), index)
        self.changed = set(self.ready)

    def startable(self) -> list[int]:
        """The tasks that start now; their lanes are busy from here on."""
        found = []
        for lane in self.changed:
            if self.ready.get(lane) and lane not in self.busy:
                self.busy.add(lane)
                found.append(heappop(self.ready[lane]))
        self.changed = set()
        return found

    def finish(self, index: int) -> None:
        """A task is done: its lane is free, and what waited only for it is ready."""
        lane = self.tasks[index].resource
        self.busy.discard(lane)
        self.changed.add(lane)
        for user in self.users[index]:
            self.missing[user] -= 1
            if self.missing[user] == 0:
                heappush(self.ready.setdefault(self.tasks[user].resource, []), user)
                self.changed.add(self.tasks[user].resource)
