"""Durations of a task graph whose speeds change on the way: busy links and what others compute delay work, memories
and links are shared. Between tasks time may pass, too.

Lanes are queues, as in `schedule`."""

from collections import deque
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from helmsman.lowering.graph import Task
from helmsman.planner.handovers import Handovers
from helmsman.planner.interference import Slowed, Slowings, speeds, under_way
from helmsman.planner.sharing import Sharing
from helmsman.planner.works import Works
from helmsman.schemas.hardware import Hardware, lane_owner


def delayed_makespan(
    works: Works,
    times: Sequence[float],
    slowed: Slowed | None = None,
    sharing: Sharing | None = None,
    between: Handovers | None = None,
) -> float:
    """Seconds from the first start to the last end, when kinds of work take `times` alone; O(tasks x lanes).

    The simulator's rules: work runs at 1 / (1 + the factors of what slows it and is under way), if something is
    `slowed`; and asks for as much less of the memories and links that all draw on, if they are not `sharing`.
    `between`: the time between tasks."""
    hardware = between.hardware if between is not None else None
    run = _Run(works, times, _Speeds(works, times, slowed, sharing, hardware), between)
    while run.start():
        run.advance()
    return run.ended


class _Flow(NamedTuple):
    """All that decides how fast work runs beside other work: bytes/s that it asks for, how often they count in each
    pool, the traffic that slows it, and what it is itself."""

    rate: float
    uses: tuple[tuple[str, int], ...]
    slowings: Slowings
    traffic: tuple[str, ...]


class _Speeds:
    """How fast kinds of work run beside each other; what was asked before is remembered, as blocks repeat it.

    `flow_of`: by kind of work, the number of its flow."""

    def __init__(
        self,
        works: Works,
        times: Sequence[float],
        slowed: Slowed | None,
        sharing: Sharing | None,
        hardware: Hardware | None,
    ) -> None:
        self.slowed, self.sharing = slowed, sharing
        self._links = {} if hardware is None else {link.name: link for link in hardware.links}
        numbers: dict[_Flow, int] = {}
        flows = (self._flow(task, alone) for task, alone in zip(works.kinds, times, strict=True))
        self.flow_of = [numbers.setdefault(flow, len(numbers)) for flow in flows]
        self._flows = tuple(numbers)
        self._known: dict[tuple[int, ...], list[float]] = {}

    def _flow(self, task: Task, alone: float) -> _Flow:
        rate, uses = self.sharing.asked(task, alone) if self.sharing is not None else (0.0, {})
        slowings = self.slowed(task) if self.slowed is not None else ()
        return _Flow(rate, tuple(uses.items()), slowings, self._traffic(task, slowings))

    def _traffic(self, task: Task, slowings: Slowings) -> tuple[str, ...]:
        if task.kind == "transfer" and not self._links:
            return (lane_owner(task.resource),)
        return under_way(self._links, task, slowings)

    def of(self, running: tuple[int, ...]) -> list[float]:
        """The speeds of some flows together, relative to running alone."""
        if running not in self._known:
            self._known[running] = self._together([self._flows[number] for number in running])
        return self._known[running]

    def _together(self, flows: Sequence[_Flow]) -> list[float]:
        moving = {traffic for flow in flows for traffic in flow.traffic}
        pairs = [speeds(flow.slowings, moving) for flow in flows]
        if self.sharing is None:
            return [slowed * part for slowed, part in pairs]
        asked = {place: (flow.rate * pairs[place][0], dict(flow.uses)) for place, flow in enumerate(flows)}
        interrupted = {place: part for place, (_, part) in enumerate(pairs) if part < 1.0}
        fair = self.sharing.speeds(asked, interrupted)
        return [slowed * fair.get(place, part) for place, (slowed, part) in enumerate(pairs)]


class _Run:
    """What is running, and how many seconds of its work are left, alone.

    `missing`: by task, for how many others it still waits; `ready`: when the last hand-over to it so far is over;
    `working`: the task of each busy lane, `running`: the flows of these, `left`: their seconds, all in order of their
    starts; `free`: when each lane last became free; `next`: the first moment from which a task may start that waits for
    nothing but time."""

    def __init__(self, works: Works, times: Sequence[float], speeds: _Speeds, between: Handovers | None) -> None:
        self.works, self.times, self.speeds = works, times, speeds
        self.between = between if between is not None and between.known else None
        self.now = self.ended = 0.0
        self.next = inf
        self.missing = [len(task.deps) for task in works.graph.tasks]
        self.ready = [0.0] * len(works.graph.tasks)
        self.free: dict[str, float] = {}
        self.waiting = {lane: deque(tasks) for lane, tasks in works.lanes.items()}
        self.working: dict[str, int] = {}
        self.running: dict[str, int] = {}
        self.left: dict[str, float] = {}

    def start(self) -> bool:
        """Start what can start; whether anything runs, or will."""
        self.next = inf
        for lane, queue in self.waiting.items():
            if queue and lane not in self.working and not self.missing[queue[0]]:
                if (moment := self._moment(lane, queue[0])) > self.now:
                    self.next = min(self.next, moment)
                    continue
                index = self.working[lane] = queue.popleft()
                kind = self.works.kind[index]
                self.running[lane] = self.speeds.flow_of[kind]
                self.left[lane] = self.times[kind]
        return bool(self.working) or self.next < inf

    def _moment(self, lane: str, index: int) -> float:
        """From when on a task may start that waits for no other."""
        if self.between is None:
            return 0.0
        tasks = self.works.graph.tasks
        waited = (tasks[dep].resource for dep in tasks[index].deps)
        gap = self.between.joins(waited, lane) if lane in self.free else 0.0
        return max(self.ready[index], self.free.get(lane, 0.0) + gap)

    def advance(self) -> None:
        """To the next end of a task, or several, or to the next moment at which one may start."""
        speeds = self.speeds.of(tuple(self.running.values()))
        needed = [left / pace for left, pace in zip(self.left.values(), speeds, strict=True)]
        step = min(needed, default=inf)
        if self.next - self.now < step:
            step = self.next - self.now
            self.now = self.next
        else:
            self.now += step
        for lane, seconds, pace in zip(tuple(self.left), needed, speeds, strict=True):
            if seconds > step:
                self.left[lane] = (seconds - step) * pace
            else:
                self._end(lane)

    def _end(self, lane: str) -> None:
        del self.left[lane], self.running[lane]
        self.free[lane] = self.ended = self.now
        done = self.working.pop(lane)
        tasks = self.works.graph.tasks
        for follower in self.works.followers[done]:
            self.missing[follower] -= 1
            if self.between is not None:
                moment = self.now + self.between.after(lane, tasks[follower].resource)
                self.ready[follower] = max(self.ready[follower], moment)
