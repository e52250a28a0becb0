"""Durations of a task graph whose speeds change on the way: busy links delay work, memories and links are shared.

Lanes are queues, as in `schedule`."""

from collections import deque
from collections.abc import Callable

from helmsman.lowering.graph import Task, TaskGraph
from helmsman.planner.interference import Slowed, speed
from helmsman.planner.sharing import Sharing, Uses
from helmsman.schemas.hardware import lane_owner


def delayed_makespan(
    graph: TaskGraph, seconds: Callable[[Task], float], slowed: Slowed | None = None, sharing: Sharing | None = None
) -> float:
    """Seconds from the first start to the last end; O(tasks x lanes).

    The simulator's rules: work runs at 1 / (1 + the factors of links on which a transfer is under way), if something
    is `slowed`; and asks for as much less of the memories and links that all draw on, if they are not `sharing`."""
    run = _Run(graph, seconds, slowed, sharing)
    while run.start():
        run.advance()
    return run.now


class _Run:
    """What is running, and how many seconds of its work are left, alone."""

    def __init__(
        self,
        graph: TaskGraph,
        seconds: Callable[[Task], float],
        slowed: Slowed | None,
        sharing: Sharing | None,
    ) -> None:
        self.tasks, self.seconds, self.slowed, self.sharing = graph.tasks, seconds, slowed, sharing
        self.flows: dict[int, tuple[float, Uses]] = {}
        self.now = 0.0
        self.done = [False] * len(graph.tasks)
        self.left: dict[int, float] = {}
        self.waiting: dict[str, deque[int]] = {}
        for index, task in enumerate(graph.tasks):
            self.waiting.setdefault(task.resource, deque()).append(index)
        self.working: dict[str, int] = {}

    def start(self) -> bool:
        """Start what can start; whether anything runs."""
        for lane, queue in self.waiting.items():
            if queue and lane not in self.working and all(self.done[dep] for dep in self.tasks[queue[0]].deps):
                index = self.working[lane] = queue.popleft()
                alone = self.left[index] = self.seconds(self.tasks[index])
                if self.sharing is not None:
                    self.flows[index] = self.sharing.asked(self.tasks[index], alone)
        return bool(self.working)

    def _speeds(self) -> dict[int, float]:
        """Of all that runs, relative to running alone."""
        speeds = dict.fromkeys(self.working.values(), 1.0)
        if self.slowed is not None:
            busy = {lane_owner(lane) for lane, index in self.working.items() if self.tasks[index].kind == "transfer"}
            speeds = {index: speed(self.slowed(self.tasks[index]), busy.__contains__) for index in speeds}
        if self.sharing is None:
            return speeds
        fair = self.sharing.speeds({index: (rate * speeds[index], uses) for index, (rate, uses) in self.flows.items()})
        return {index: own * fair.get(index, 1.0) for index, own in speeds.items()}

    def advance(self) -> None:
        """To the next end of a task, or several."""
        speeds = self._speeds()
        step = min(self.left[index] / speeds[index] for index in speeds)
        self.now += step
        for lane, index in tuple(self.working.items()):
            left = self.left[index] / speeds[index] - step
            if left > 0.0:
                self.left[index] = left * speeds[index]
            else:
                del self.left[index], self.working[lane]
                self.flows.pop(index, None)
                self.done[index] = True
