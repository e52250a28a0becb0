"""Replay: tasks executed in virtual time, with exclusive lanes, shared bandwidth of memories and links, work that busy
links delay, and time between tasks."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Self

from helmsman.lowering.graph import Task, TaskGraph
from helmsman.lowering.pools import Pools
from helmsman.planner.handovers import Handovers
from helmsman.planner.interference import Slowed, Slowings, alone, interrupts, under_way
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.trace import SourceKind, Span
from helmsman.simulator._replay import Loop
from helmsman.simulator.overlap import LaneKinds, OverlapShares

Price = Callable[[Task], float]
Done = Callable[[int, Task, float, float], None]

WINDOW = 4096
"""Unfinished tasks that are looked at. A transfer comes at most a few layers ahead of its use, so what starts next is
always among far fewer; results are those of the whole graph if none starts while so many before it are unfinished."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a replay adds up to.

    `busy`, `moved`: seconds each lane worked and the bytes it moved or streamed; `overlap`: seconds during which two or
    more lanes worked; `shares`: what worked together; `tasks`: how many there were."""

    makespan: float
    busy: dict[str, float]
    moved: dict[str, int]
    overlap: float
    shares: OverlapShares
    tasks: int

    def later(self, seconds: float) -> Self:
        """The same after `seconds` in which nothing works."""
        shares = self.shares.plus(OverlapShares(idle=seconds))
        return replace(self, makespan=self.makespan + seconds, shares=shares)


@dataclass(frozen=True, slots=True)
class Replay:
    """When each task of `graph` ran: `start[i]`, `end[i]` in seconds, by index in the graph; and the summary."""

    graph: TaskGraph
    start: tuple[float, ...]
    end: tuple[float, ...]
    summary: Summary

    @property
    def makespan(self) -> float:
        """Seconds from the first start to the last end."""
        return self.summary.makespan

    @property
    def busy(self) -> dict[str, float]:
        """Seconds each lane worked."""
        return self.summary.busy

    @property
    def moved(self) -> dict[str, int]:
        """Bytes each lane moved or streamed."""
        return self.summary.moved

    @property
    def overlap(self) -> float:
        """Seconds during which two or more lanes worked."""
        return self.summary.overlap


def replay(
    graph: TaskGraph,
    price: Price,
    hardware: Hardware,
    slowed: Slowed | None = None,
    between: Handovers | None = None,
) -> Replay:
    """Execute `graph` in virtual time; `price` gives the seconds of a task alone on its lane, `slowed` what
    delays it: by default all links of the record (`planner.interference`), as if no price counted one already, and not
    what others compute; `between`: the time between tasks and the launching thread (`CostModel.between`), by default
    none.

    A lane is a queue, as the executor's are: a task starts when its dependencies and the task before it on its lane are
    done, and handed over. Running tasks share bandwidth (`lowering.pools`). Where one thread of the host launches for
    all devices, the makespan is no less than that thread works (`lowering.host_thread`), and the rest of it idle.
    Deterministic; cost O(tasks x log), and x running under contention.
    Raises ValueError for a graph with a cycle, and for seconds that are negative or not a number."""
    start, end = [0.0] * len(graph.tasks), [0.0] * len(graph.tasks)

    def record(index: int, _: Task, began: float, ended: float) -> None:
        start[index], end[index] = began, ended

    summary = replay_stream(graph.tasks, price, hardware, record, len(graph.tasks) + 1, slowed, between)
    return Replay(graph, tuple(start), tuple(end), summary)


def replay_stream(
    tasks: Iterable[Task],
    price: Price,
    hardware: Hardware,
    done: Done | None = None,
    window: int = WINDOW,
    slowed: Slowed | None = None,
    between: Handovers | None = None,
) -> Summary:
    """`replay` of tasks as they come, in topological order, with memory for twice `window` unfinished ones only.

    Equal to `replay` when there no task starts while `window` or more before it are unfinished.
    `done` hears of every task: its index, itself, its start and its end."""
    return _Run(iter(tasks), price, hardware, done, slowed or alone(hardware), between).go(window)


def spans(made: Replay, source: SourceKind = "simulated", offset: float = 0.0, run: int = 0) -> list[Span]:
    """The rows of a Trace, `offset` seconds after the run's start, in order of the graph."""
    return [
        Span(
            run=run,
            source=source,
            task=task.id,
            iteration=made.graph.iteration.index,
            request=task.batch,
            phase=task.phase,
            layer=-1 if task.layer is None else task.layer,
            op=task.op,
            resource=task.resource,
            start_s=offset + start,
            end_s=offset + end,
            bytes=task.bytes,
            flops=float(task.flops),
        )
        for task, start, end in zip(made.graph.tasks, made.start, made.end, strict=True)
    ]


class _Run:
    """Feeds the native loop with tasks as they come, and names what comes back."""

    def __init__(
        self,
        tasks: Iterator[Task],
        price: Price,
        hardware: Hardware,
        done: Done | None,
        slowed: Slowed | None,
        between: Handovers | None,
    ) -> None:
        self.tasks, self.price, self.done = tasks, price, done
        self.slowed = slowed
        self.between = _Between(between) if between is not None and between.known else None
        self.thread, self.held = between.thread if between is not None and between.thread.known else None, 0.0
        self.links = {link.name: link for link in hardware.links}
        self.kinds_of_traffic: dict[str, int] = {}
        self.traffic: dict[tuple[str, ...], int] = {(): -1}
        self.slowings: dict[Slowings, int] = {(): -1}
        self.pools, self.kinds = Pools(hardware), LaneKinds(hardware)
        self.loop = Loop(self.pools.rates, record=done is not None)
        self.lanes: dict[str, int] = {}
        self.moved: list[int] = []
        self.seats: dict[tuple[str, tuple[str, ...]], tuple[int, int, float]] = {}
        self.pending: dict[int, Task] = {}
        self.count = 0

    def go(self, window: int) -> Summary:
        """Keep at least `window` unfinished tasks in the loop, at most twice as many, until there are no more."""
        while self._feed(2 * window - self.loop.unfinished):
            self.loop.run(window)
            self._tell()
        self._finish()
        self._tell()
        return self._summary()

    def _feed(self, room: int) -> bool:
        """Whether there may be more tasks than the `room` that were fed."""
        lanes, seconds, rates, uses, slows, counts, deps = [], [], [], [], [], [], list[int]()
        traffic, gaps, handovers = [], [], list[float]()
        for task in islice(self.tasks, room):
            alone, size = self.price(task), task.bytes
            if not alone >= 0.0:
                raise ValueError(f"task {task.id} cannot take {alone} s")
            lane, drawn, most = self.seats.get((task.resource, task.memories)) or self._seat(task)
            self.moved[lane] += size
            if self.thread is not None:
                self.held += self.thread.seconds(task, alone)
            rate = min(self.pools.drawn(task) / alone, most) if alone else 0.0
            lanes.append(lane)
            seconds.append(alone)
            rates.append(rate)
            uses.append(drawn if rate else -1)
            found = self.slowed(task) if self.slowed else ()
            slows.append(self._slowings(found))
            traffic.append(self._traffic(task, found) if self.slowed else -1)
            gaps.append(self.between.add(task, handovers) if self.between else 0.0)
            counts.append(len(task.deps))
            deps += task.deps
            if self.done is not None:
                self.pending[self.count + len(lanes) - 1] = task
        self.count += len(lanes)
        handovers = handovers if self.between else [0.0] * len(deps)
        self.loop.feed(lanes, seconds, rates, uses, traffic, slows, gaps, counts, deps, handovers)
        return len(lanes) == room

    def _seat(self, task: Task) -> tuple[int, int, float]:
        """Numbers of a lane and of what its tasks draw on when they use such memories, and their most bytes/s.

        A task that alone already exceeds what a pool nominally has counts as using all of it."""
        lane = self.lanes.get(task.resource)
        if lane is None:
            lane = self.lanes[task.resource] = self.loop.add_lane(self.kinds.flag(task.resource))
            self.moved.append(0)
        uses = self.pools.uses(task)
        seat = (lane, self.loop.add_uses(self.pools.numbered(uses)), self.pools.most(uses))
        self.seats[task.resource, task.memories] = seat
        return seat

    def _slowings(self, found: Slowings) -> int:
        """The number of what delays a task; -1 for nothing."""
        if found not in self.slowings:
            parts = ([each for each in found if interrupts(each[0]) is kind] for kind in (False, True))
            slows, others = ([(self._kind(name), extra) for name, extra in part] for part in parts)
            self.slowings[found] = self.loop.add_slowings(slows, others)
        return self.slowings[found]

    def _traffic(self, task: Task, found: Slowings) -> int:
        """The number of what is under way while a task runs; -1 for nothing."""
        moving = under_way(self.links, task, found)
        if moving not in self.traffic:
            self.traffic[moving] = self.loop.add_traffic([self._kind(name) for name in moving])
        return self.traffic[moving]

    def _kind(self, name: str) -> int:
        return self.kinds_of_traffic.setdefault(name, len(self.kinds_of_traffic))

    def _finish(self) -> None:
        try:
            self.loop.run(0)
        except RuntimeError:
            raise ValueError("the task graph has a cycle") from None

    def _tell(self) -> None:
        if self.done is not None:
            for index, start, end in zip(*self.loop.finished(), strict=True):
                self.done(index, self.pending.pop(index), start, end)

    def _summary(self) -> Summary:
        made = Summary(
            makespan=self.loop.now,
            busy=dict(zip(self.lanes, self.loop.busy, strict=True)),
            moved=dict(zip(self.lanes, self.moved, strict=True)),
            overlap=self.loop.overlap,
            shares=self.kinds.shares(self.loop.masks),
            tasks=self.count,
        )
        return made.later(self.held - made.makespan) if self.held > made.makespan else made


class _Between:
    """The time between tasks as they come: of all so far only their lanes are kept."""

    def __init__(self, between: Handovers) -> None:
        self.between = between
        self.lanes: list[str] = []
        self.begun = set[str]()

    def add(self, task: Task, handovers: list[float]) -> float:
        """The seconds after the task before it on its lane; after each of those it waits for, to `handovers`."""
        others = [self.lanes[dep] for dep in task.deps]
        handovers += [self.between.after(lane, task.resource) for lane in others]
        gap = self.between.joins(others, task.resource) if task.resource in self.begun else 0.0
        self.begun.add(task.resource)
        self.lanes.append(task.resource)
        return gap
