"""Replay: tasks executed in virtual time, with exclusive lanes and shared bandwidth of memories and links."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

from helmsman.lowering.graph import Task, TaskGraph
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.trace import SourceKind, Span
from helmsman.simulator.engine import Engine
from helmsman.simulator.fluid import Flow, Pools, speeds
from helmsman.simulator.overlap import LaneKinds, OverlapShares

Price = Callable[[Task], float]
Done = Callable[[int, Task, float, float], None]

WINDOW = 4096
"""Unfinished tasks that are looked at. A transfer comes at most a few layers ahead of its use, so what starts next is
always among far fewer; results are those of the whole graph as long as no task may start before so many others."""


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


def replay(graph: TaskGraph, price: Price, hardware: Hardware) -> Replay:
    """Execute `graph` in virtual time; `price` gives the seconds of a task alone on its lane.

    A task starts when its dependencies are done and its lane is free; of several, the first in the graph.
    Running tasks share bandwidth (`fluid`). Deterministic; cost O(tasks x log), and x running under contention.
    Raises ValueError for a graph with a cycle."""
    start, end = [0.0] * len(graph.tasks), [0.0] * len(graph.tasks)

    def record(index: int, _: Task, began: float, ended: float) -> None:
        start[index], end[index] = began, ended

    summary = replay_stream(graph.tasks, price, hardware, record, window=len(graph.tasks) + 1)
    return Replay(graph, tuple(start), tuple(end), summary)


def replay_stream(
    tasks: Iterable[Task], price: Price, hardware: Hardware, done: Done | None = None, window: int = WINDOW
) -> Summary:
    """`replay` of tasks as they come, in topological order, with memory for `window` unfinished ones only.

    `done` hears of every task: its index, itself, its start and its end."""
    run = _Run(iter(tasks), price, hardware, done, window)
    run.start_ready()
    while due := run.engine.step():
        run.finish(due)
        run.start_ready()
    return run.result()


def spans(made: Replay, source: SourceKind = "simulated", offset: float = 0.0, run: int = 0) -> list[Span]:
    """The rows of a Trace, `offset` seconds after the run's start, in order of the graph."""
    return [
        Span(
            run=run,
            source=source,
            task=task.id,
            iteration=made.graph.iteration.index,
            request=task.batch,
            phase=made.graph.iteration.phase,
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


@dataclass(slots=True, eq=False)
class _Job:
    """A task that is not finished: `missing` dependencies, then `left` seconds-alone at time `since`, at `speed`.

    `version` tells the completion event that counts from those that a change of speed made stale."""

    index: int
    task: Task
    seconds: float
    missing: int
    users: list["_Job"] = field(default_factory=list)
    flow: Flow | None = None
    start: float = 0.0
    left: float = 0.0
    since: float = 0.0
    speed: float = 0.0
    version: int = 0

    def __lt__(self, other: "_Job") -> bool:
        return self.index < other.index


class _Lane:
    """One lane: the task it works on, those that are ready, and what it has done."""

    __slots__ = ("busy", "flag", "job", "moved", "ready")

    def __init__(self, flag: int) -> None:
        self.flag = flag
        self.job: _Job | None = None
        self.ready: list[_Job] = []
        self.busy = 0.0
        self.moved = 0


class _Run:
    """The state of one replay."""

    def __init__(self, tasks: Iterator[Task], price: Price, hardware: Hardware, done: Done | None, window: int) -> None:
        self.tasks, self.price, self.done, self.window = tasks, price, done, window
        self.pools, self.kinds = Pools(hardware), LaneKinds(hardware)
        self.engine: Engine[tuple[_Job, int]] = Engine()
        self.lanes: dict[str, _Lane] = {}
        self.waiting: dict[int, _Job] = {}
        self.fresh: set[_Lane] = set()
        self.flowing: dict[_Job, None] = {}
        self.wanted = dict.fromkeys(self.pools.capacity, 0.0)
        self.contended = False
        self.count = self.working = 0
        self.exhausted = False
        self.last = 0.0
        self.masks: dict[int, float] = {}
        self.active = [0] * self.kinds.count
        self.mask = 0
        self.overlap = 0.0

    def start_ready(self) -> None:
        """Take new tasks in, start what can start on the lanes where something changed, share bandwidth anew."""
        if not self.exhausted:
            self._admit()
        started = [self._start(lane) for lane in self.fresh if lane.ready and lane.job is None]
        self.fresh.clear()
        if started:
            self._share(started)

    def finish(self, due: list[tuple[_Job, int]]) -> None:
        """Complete the tasks that are due and release those that waited for them."""
        now = self.engine.now
        passed = now - self.last
        if passed:
            self.masks[self.mask] = self.masks.get(self.mask, 0.0) + passed
            if self.working > 1:
                self.overlap += passed
            self.last = now
        flowed = False
        for job, version in due:
            if job.version == version:
                flowed = self._complete(job, now) or flowed
        if flowed and self.contended:
            self._rebalance()

    def result(self) -> Summary:
        """The summary, once no event is left."""
        if self.waiting:
            raise ValueError("the task graph has a cycle")
        return Summary(
            makespan=self.last,
            busy={name: lane.busy for name, lane in self.lanes.items()},
            moved={name: lane.moved for name, lane in self.lanes.items()},
            overlap=self.overlap,
            shares=self.kinds.shares(self.masks),
            tasks=self.count,
        )

    def _admit(self) -> None:
        """Take tasks in until `window` are unfinished."""
        waiting, lanes = self.waiting, self.lanes
        for task in self.tasks:
            index = self.count
            self.count = index + 1
            lane = lanes.get(task.resource)
            if lane is None:
                lane = lanes[task.resource] = _Lane(self.kinds.flag(task.resource))
            seconds = self.price(task)
            job = _Job(index, task, seconds, 0)
            for dep in set(task.deps):
                before = waiting.get(dep)
                if before is not None:
                    before.users.append(job)
                    job.missing += 1
                elif dep >= index:
                    raise ValueError("the task graph has a cycle")
            waiting[index] = job
            lane.moved += task.bytes
            if job.missing == 0:
                heappush(lane.ready, job)
                self.fresh.add(lane)
            if len(waiting) >= self.window:
                return
        self.exhausted = True

    def _start(self, lane: _Lane) -> _Job:
        job = lane.job = heappop(lane.ready)
        job.start = job.since = self.engine.now
        job.left = job.seconds
        self.working += 1
        flag = lane.flag
        self.active[flag] += 1
        self.mask |= 1 << flag
        job.flow = self.pools.flow(job.task, job.seconds)
        if job.flow is not None:
            self.flowing[job] = None
            for pool, times in job.flow.uses.items():
                self.wanted[pool] += job.flow.rate * times
        return job

    def _complete(self, job: _Job, now: float) -> bool:
        """Whether a flow ended."""
        task = job.task
        lane = self.lanes[task.resource]
        lane.job = None
        lane.busy += now - job.start
        self.fresh.add(lane)
        self.working -= 1
        flag = lane.flag
        self.active[flag] -= 1
        if not self.active[flag]:
            self.mask &= ~(1 << flag)
        job.version = -1
        del self.waiting[job.index]
        for user in job.users:
            user.missing -= 1
            if user.missing == 0:
                other = self.lanes[user.task.resource]
                heappush(other.ready, user)
                self.fresh.add(other)
        if self.done is not None:
            self.done(job.index, task, job.start, now)
        if job.flow is None:
            return False
        self._leave(job, job.flow)
        return True

    def _leave(self, job: _Job, flow: Flow) -> None:
        del self.flowing[job]
        if not self.flowing:
            self.wanted = dict.fromkeys(self.wanted, 0.0)
            return
        for pool, times in flow.uses.items():
            self.wanted[pool] -= flow.rate * times

    def _share(self, started: list[_Job]) -> None:
        """Give new tasks their speed; all flows anew when they want more of a pool than it has."""
        if self.contended or self.pools.overcommitted(self.wanted):
            self._rebalance()
            started = [job for job in started if job.flow is None]
        now, schedule = self.engine.now, self.engine.schedule
        for job in started:
            job.speed = 1.0
            schedule(now + job.left, (job, job.version))

    def _rebalance(self) -> None:
        """Flows whose speed changes get a new completion event."""
        now, jobs = self.engine.now, list(self.flowing)
        self.contended = self.pools.overcommitted(self.wanted)
        flows = [job.flow for job in jobs]
        shared = speeds(flows, self.pools.capacity) if self.contended else [1.0] * len(jobs)
        for job, speed in zip(jobs, shared, strict=True):
            if speed != job.speed:
                job.left = max(0.0, job.left - job.speed * (now - job.since))
                job.since, job.speed = now, speed
                job.version += 1
                self.engine.schedule(now + job.left / speed, (job, job.version))
