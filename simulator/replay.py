"""Replay: tasks executed in virtual time, with exclusive lanes, shared bandwidth of memories and links, work that busy
links delay, and time between tasks."""

from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Self

from helmsman.lowering.graph import Task, TaskGraph
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.trace import SourceKind, Span
from helmsman.simulator.overlap import LaneKinds, OverlapShares
from helmsman.timing.clock import Clock
from helmsman.timing.handovers import Handovers
from helmsman.timing.interference import Slowed, alone
from helmsman.timing.pools import Pools

Price = Callable[[Task], float]
Done = Callable[[int, Task, float, float], None]

WINDOW = 4096
"""Unfinished tasks that are looked at. A transfer comes at most a few layers ahead of its use, so what starts next is
always among far fewer; results are those of the whole graph if none starts while so many before it are unfinished."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The sums of a replay.

    `busy`, `moved`: seconds each lane worked and the bytes it moved or streamed; `overlap`: seconds during which two or
    more lanes worked; `shares`: what worked together; `tasks`: how many there were."""

    makespan: float
    busy: dict[str, float]
    moved: dict[str, int]
    overlap: float
    shares: OverlapShares
    tasks: int

    def later(self, seconds: float) -> Self:
        """Return the sums after `seconds` in which nothing works."""
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
        """Return seconds from the first start to the last end."""
        return self.summary.makespan

    @property
    def busy(self) -> dict[str, float]:
        """Return seconds each lane worked."""
        return self.summary.busy

    @property
    def moved(self) -> dict[str, int]:
        """Return bytes each lane moved or streamed."""
        return self.summary.moved

    @property
    def overlap(self) -> float:
        """Return seconds during which two or more lanes worked."""
        return self.summary.overlap


def replay(
    graph: TaskGraph,
    price: Price,
    hardware: Hardware,
    slowed: Slowed | None = None,
    between: Handovers | None = None,
) -> Replay:
    """Execute `graph` in virtual time; `price` gives the seconds of a task alone on its lane, `slowed` what
    delays it: by default all links of the record (`timing.interference`), as if no price counted one already, and not
    what others compute; `between`: the time between tasks and the launching thread (`CostModel.between`), by default
    none.

    A lane is a queue, as the executor's are: a task starts when its dependencies and the task before it on its lane are
    done, and handed over. Running tasks share bandwidth (`timing.pools`). Where one thread of the host launches for
    all devices, the makespan is no less than that thread works (`timing.host_thread`), and the rest of it idle.
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
    """`replay` of tasks as they come, in topological order, with memory for twice `window` unfinished ones, for every
    distinct kind of work, and four bytes a task for its lane.

    Equal to `replay` when there no task starts while `window` or more before it are unfinished.
    `done` hears of every task: its index, itself, its start and its end."""
    kinds = LaneKinds(hardware)
    clock = Clock(Pools(hardware), slowed or alone(hardware), between, kinds.flag, record=done is not None)
    return _Run(iter(tasks), price, done, clock, kinds).go(window)


def spans(made: Replay, source: SourceKind = "simulated", offset: float = 0.0, run: int = 0) -> list[Span]:
    """Return the rows of a Trace, `offset` seconds after the run's start, in order of the graph."""
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
    """Feeds the clock with tasks as they come, and names what comes back."""

    def __init__(self, tasks: Iterator[Task], price: Price, done: Done | None, clock: Clock, kinds: LaneKinds) -> None:
        self.tasks, self.price, self.done, self.clock, self.kinds = tasks, price, done, clock, kinds
        self.moved: dict[str, int] = {}
        self.pending: dict[int, Task] = {}
        self.count = 0

    def go(self, window: int) -> Summary:
        """Keep at least `window` unfinished tasks in the clock, at most twice as many, until there are no more."""
        while self._feed(2 * window - self.clock.loop.unfinished):
            self.clock.run(window)
            self._tell()
        self.clock.run()
        self._tell()
        return self._summary()

    def _feed(self, room: int) -> bool:
        """Whether there may be more tasks than the `room` that were fed."""
        tasks, moved = tuple(islice(self.tasks, room)), self.moved
        works = array("i", [self.clock.work(task, self.price(task)) for task in tasks])
        counts = array("i", [len(task.deps) for task in tasks])
        self.clock.feed(works, counts, array("q", chain.from_iterable(task.deps for task in tasks)))
        for task in tasks:
            moved[task.resource] = moved.get(task.resource, 0) + task.bytes
        if self.done is not None:
            self.pending.update(enumerate(tasks, self.count))
        self.count += len(tasks)
        return len(tasks) == room

    def _tell(self) -> None:
        if self.done is not None:
            for index, start, end in zip(*self.clock.loop.finished(), strict=True):
                self.done(index, self.pending.pop(index), start, end)

    def _summary(self) -> Summary:
        loop = self.clock.loop
        made = Summary(
            makespan=loop.now,
            busy=dict(zip(self.clock.lanes, loop.busy, strict=True)),
            moved=self.moved,
            overlap=loop.overlap,
            shares=self.kinds.shares(loop.masks),
            tasks=self.count,
        )
        return made.later(max(0.0, self.clock.makespan - made.makespan))
