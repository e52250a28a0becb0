"""Replay: a task graph executed in virtual time, with exclusive lanes and shared memory bandwidth."""

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush

from helmsman.lowering.graph import Task, TaskGraph
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.trace import SourceKind, Span
from helmsman.simulator.engine import Engine
from helmsman.simulator.fluid import Flow, Pools, speeds

Price = Callable[[Task], float]


@dataclass(frozen=True, slots=True)
class Replay:
    """When each task of `graph` ran: `start[i]`, `end[i]` in seconds, by index in the graph.

    `busy`, `moved`: seconds each lane worked and the bytes it moved or streamed; `overlap`: seconds during
    which two or more lanes worked."""

    graph: TaskGraph
    start: tuple[float, ...]
    end: tuple[float, ...]
    makespan: float
    busy: dict[str, float]
    moved: dict[str, int]
    overlap: float


def replay(graph: TaskGraph, price: Price, hardware: Hardware) -> Replay:
    """Execute `graph` in virtual time; `price` gives the seconds of a task alone on its lane.

    A task starts when its dependencies are done and its lane is free; of several, the first in the graph.
    Running tasks share memory bandwidth (`fluid`). Deterministic; cost O(tasks x log + tasks x running)."""
    run = _Run(graph, [price(task) for task in graph.tasks], Pools(hardware))
    run.start_ready()
    while due := run.engine.step():
        run.finish(due)
        run.start_ready()
    return run.result()


def spans(done: Replay, source: SourceKind = "simulated", offset: float = 0.0, run: int = 0) -> list[Span]:
    """The rows of a Trace, `offset` seconds after the run's start, in order of the graph."""
    return [
        Span(
            run=run,
            source=source,
            task=task.id,
            iteration=done.graph.iteration.index,
            request=0,
            phase=done.graph.iteration.phase,
            layer=-1 if task.layer is None else task.layer,
            op=task.op,
            resource=task.resource,
            start_s=offset + start,
            end_s=offset + end,
            bytes=task.bytes,
            flops=float(task.flops),
        )
        for task, start, end in zip(done.graph.tasks, done.start, done.end, strict=True)
    ]


@dataclass(slots=True)
class _Running:
    """Work in progress: `left` seconds-alone at time `since`, advancing at `speed`.

    `version` tells the completion event that counts from those that a change of speed made stale."""

    left: float
    since: float
    speed: float = 0.0
    version: int = 0


class _Run:
    """The state of one replay."""

    def __init__(self, graph: TaskGraph, seconds: list[float], pools: Pools) -> None:
        self.graph, self.seconds, self.pools = graph, seconds, pools
        self.engine: Engine[tuple[int, int]] = Engine()
        self.start = [0.0] * len(seconds)
        self.end = [0.0] * len(seconds)
        self.missing = [len(set(task.deps)) for task in graph.tasks]
        self.users = _users(graph)
        self.ready: dict[str, list[int]] = {task.resource: [] for task in graph.tasks}
        self.occupied: set[str] = set()
        self.running: dict[int, _Running] = {}
        self.flows: dict[int, Flow | None] = {}
        self.fresh = {task.resource for task in graph.tasks}
        self.overlap = 0.0
        self.settled_at = 0.0
        for index, count in enumerate(self.missing):
            if count == 0:
                heappush(self.ready[graph.tasks[index].resource], index)

    def start_ready(self) -> None:
        """Start what can start on the lanes where something changed, then share bandwidth anew."""
        for lane in sorted(self.fresh):
            if self.ready[lane] and lane not in self.occupied:
                self._start(heappop(self.ready[lane]), lane)
        self.fresh.clear()
        self._share()

    def finish(self, due: list[tuple[int, int]]) -> None:
        """Complete the tasks that are due and release those that waited for them."""
        if len(self.running) > 1:
            self.overlap += self.engine.now - self.settled_at
        self.settled_at = self.engine.now
        for index, version in due:
            work = self.running.get(index)
            if work is not None and work.version == version:
                self._complete(index)

    def result(self) -> Replay:
        """The replay, once no event is left."""
        if len(self.running) or any(self.missing):
            raise ValueError("the task graph has a cycle")
        busy, moved = dict.fromkeys(self.ready, 0.0), dict.fromkeys(self.ready, 0)
        for task, start, end in zip(self.graph.tasks, self.start, self.end, strict=True):
            busy[task.resource] += end - start
            moved[task.resource] += task.bytes
        starts, ends = tuple(self.start), tuple(self.end)
        return Replay(self.graph, starts, ends, max(ends, default=0.0), busy, moved, self.overlap)

    def _start(self, index: int, lane: str) -> None:
        self.occupied.add(lane)
        self.start[index] = self.engine.now
        self.running[index] = _Running(self.seconds[index], self.engine.now)

    def _complete(self, index: int) -> None:
        lane = self.graph.tasks[index].resource
        del self.running[index]
        self.end[index] = self.engine.now
        self.occupied.discard(lane)
        self.fresh.add(lane)
        for user in self.users[index]:
            self.missing[user] -= 1
            if self.missing[user] == 0:
                lane = self.graph.tasks[user].resource
                heappush(self.ready[lane], user)
                self.fresh.add(lane)

    def _share(self) -> None:
        """Give every running task its speed; those whose speed changes get a new completion event."""
        shared = [1.0] * len(self.running)
        if len(shared) > 1:
            shared = speeds([self._flow(index) for index in self.running], self.pools.capacity)
        now = self.engine.now
        for (index, work), speed in zip(self.running.items(), shared, strict=True):
            if speed != work.speed:
                work.left = max(0.0, work.left - work.speed * (now - work.since))
                work.since, work.speed = now, speed
                work.version += 1
                self.engine.schedule(now + work.left / speed, (index, work.version))

    def _flow(self, index: int) -> Flow | None:
        if index not in self.flows:
            self.flows[index] = self.pools.flow(self.graph.tasks[index], self.seconds[index])
        return self.flows[index]


def _users(graph: TaskGraph) -> list[list[int]]:
    users: list[list[int]] = [[] for _ in graph.tasks]
    for index, task in enumerate(graph.tasks):
        for dep in set(task.deps):
            users[dep].append(index)
    return users
