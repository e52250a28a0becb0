"""Worker processes in two lanes: quick ones for questions that people wait for, others, which give way, for jobs.

A lane has a number of places. Who waits for one is served in the order of coming, but clients with less under way come
first, so that nobody takes a lane for himself alone. A quick place is kept for some seconds only: what takes longer
moves to the long lane where there is room, and is ended, to be queued there, where there is none."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from math import inf
from typing import Literal

from helmsman.schemas.errors import HardwareUnavailableError, HelmError
from helmsman.service.planner.computing.answer import WorkerAnswer
from helmsman.service.planner.computing.worker import Progress, UnbegunTaskError, WorkerProcess
from helmsman.service.planner.computing.worker_main import WorkerLimits

Lane = Literal["quick", "long"]

_NICE: dict[Lane, int] = {"quick": 5, "long": 10}
"""How far each lane gives way: the event loop comes first, then people who wait, then jobs."""
_MOST_TASKS = 5000
"""Tasks after which a process is replaced, so that nothing that a library keeps grows for ever."""
_PROMOTED_TIMES = 2
"""Times the places of the long lane that may be taken, where quick ones turn out to be long."""


class TookTooLongError(HelmError):
    """A task took longer than a job may."""

    code = "too-long"


class DisplacedError(Exception):
    """Raised where a task has had its quick place for as long as it may, and there is no room in the long lane."""


StoredQuestion = Callable[[], Awaitable[bytes]]
"""Reads a question that is kept on the disk until a process begins with it."""


@dataclass(frozen=True, slots=True)
class Work:
    """Describes a computation: a question of a kind, known by its `key`, for a `client`; `seconds`: the most that it
    may take, where that is less than a job may."""

    key: str
    kind: str
    question: bytes | StoredQuestion
    client: str
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """`places`: processes of each lane; `seconds` that a task may take of the clock; `worker`: limits of each process;
    `quick`: seconds for which a task may keep a quick place."""

    places: int
    seconds: float
    worker: WorkerLimits
    quick: float


@dataclass(eq=False)
class LaneSeat:
    """A place in a lane that a task has or waits for; `promoted`: it is to be one of the long lane; `end`: the moment
    at which the task is to be ended, and `last`: that at which it is wherever it sits (seconds of the loop)."""

    client: str
    lane: Lane
    granted: asyncio.Future[None]
    promoted: bool = False
    worker: WorkerProcess | None = None
    end: asyncio.Timeout | None = None
    last: float = inf


class WorkerPool:
    """The processes of a service. Used in one event loop; `lock`: a descriptor that workers hold as long as they
    live."""

    def __init__(self, limits: PoolLimits, lock: int | None = None) -> None:
        self._limits, self._lock = limits, lock
        self._idle: dict[Lane, list[WorkerProcess]] = {"quick": [], "long": []}
        self._seated: list[LaneSeat] = []
        self._waiting: list[LaneSeat] = []
        self._tasks: Counter[WorkerProcess] = Counter()
        self._starting: set[asyncio.Task[WorkerProcess]] = set()
        self._ending: set[asyncio.Future[None]] = set()
        self._thread = ThreadPoolExecutor(1, "processes")  # starts one at a time, as multiprocessing is not thread-safe
        self._closed = False
        self.killed = 0

    async def warm(self) -> None:
        """Start the quick workers, so that the first question does not wait for them. Raises OSError."""
        while len(self._idle["quick"]) < self._limits.places:
            self._idle["quick"].append(await self._new("quick"))

    def busy(self, lane: Lane) -> int:
        """Return the number of places of a lane that are taken."""
        return sum(seat.lane == lane for seat in self._seated)

    def waiting(self, lane: Lane, client: str | None = None) -> int:
        """Return the number of tasks that wait for a place in a lane, of one client or all."""
        return sum(seat.lane == lane and client in (None, seat.client) for seat in self._waiting)

    @asynccontextmanager
    async def taken(self, seat: LaneSeat) -> AsyncIterator[None]:
        """Wait for the place, and have it."""
        self._waiting.append(seat)
        self._grant()
        try:
            await seat.granted
            yield
        finally:
            with suppress(ValueError):
                self._waiting.remove(seat)
            with suppress(ValueError):
                self._seated.remove(seat)
            self._grant()

    def promote(self, seat: LaneSeat) -> None:
        """Let a task that is long after all be in that lane: at once where it waits, else as soon as there is room."""
        seat.promoted = True
        if not seat.granted.done():
            seat.lane = "long"
        self._grant()

    async def run(self, seat: LaneSeat, work: Work, progress: Progress) -> WorkerAnswer:
        """Return the answer to a question. Raises HelmError where the process ends, or takes too long, DisplacedError
        where a quick place was kept for too long, what reading a stored question raises; cancelled, it ends the
        process."""
        question = work.question if isinstance(work.question, bytes) else await work.question()
        most = self._limits.seconds if work.seconds is None else min(work.seconds, self._limits.seconds)
        begin = asyncio.get_running_loop().time()
        seat.last = begin + most
        kept = self._limits.quick if seat.lane == "quick" and work.seconds is None else inf
        end = min(seat.last, begin + kept)
        try:
            async with asyncio.timeout_at(end) as seat.end:
                try:
                    return await self._answer(seat, work, question, progress)
                except UnbegunTaskError:  # the process had ended while it had nothing to do
                    return await self._answer(seat, work, question, progress)
        except TimeoutError:
            if end < seat.last and seat.lane == "quick":
                raise DisplacedError from None
            raise _too_long(most) from None
        finally:
            seat.end = None

    async def close(self) -> None:
        """End the processes that have nothing to do; tasks that run are to be cancelled by who waits for them."""
        self._closed = True
        idle = [worker for lane in self._idle.values() for worker in lane]
        for lane in self._idle.values():
            lane.clear()
        await asyncio.gather(*self._starting, *(worker.end() for worker in idle), return_exceptions=True)
        self._thread.shutdown()

    async def _answer(self, seat: LaneSeat, work: Work, question: bytes, progress: Progress) -> WorkerAnswer:
        """Return the answer of one process, which then has nothing to do, or is ended."""
        seat.worker = worker = await self._worker(seat.lane)
        good = False
        try:
            answer = await worker.answer(work.kind, work.key, question, progress)
            good = not answer.spent
            return answer
        finally:
            seat.worker = None
            await self._put_back(worker, seat.lane, good)

    async def _worker(self, lane: Lane) -> WorkerProcess:
        """Return a worker with nothing to do. One that starts when nobody wants it any more waits for another task.
        Raises HardwareUnavailableError."""
        while self._idle[lane]:
            worker = self._idle[lane].pop()
            if not worker.ended:
                return worker
            await self._put_back(worker, lane, False)
        start = asyncio.create_task(self._new(lane))
        self._starting.add(start)
        start.add_done_callback(self._starting.discard)
        try:
            return await asyncio.shield(start)
        except asyncio.CancelledError:
            start.add_done_callback(lambda start: self._keep_unwanted(start, lane))
            raise
        except OSError as error:
            problem = f"no process can be started: {error.strerror}"
            raise HardwareUnavailableError(problem, remedy="come again") from None

    def _keep_unwanted(self, start: asyncio.Task[WorkerProcess], lane: Lane) -> None:
        if not start.cancelled() and start.exception() is None:
            put_back = asyncio.ensure_future(self._put_back(start.result(), lane, True))
            self._ending.add(put_back)
            put_back.add_done_callback(self._ending.discard)

    async def _new(self, lane: Lane) -> WorkerProcess:
        limits = replace(self._limits.worker, nice=_NICE[lane])
        return await WorkerProcess.started(limits, self._lock, self._thread)

    async def _put_back(self, worker: WorkerProcess, lane: Lane, good: bool) -> None:
        self._tasks[worker] += 1
        room = not self._closed and len(self._idle[lane]) < self._limits.places
        if good and room and self._tasks[worker] < _MOST_TASKS:
            self._idle[lane].append(worker)
            return
        del self._tasks[worker]
        self.killed += not good
        await asyncio.shield(worker.end())

    def _grant(self) -> None:
        """Give free places to those who wait, and move those that turned out to be long where there is room."""
        for seat in self._seated:
            if seat.promoted and seat.lane == "quick" and self.busy("long") < _PROMOTED_TIMES * self._limits.places:
                self._move(seat)
        for lane in self._idle:
            while self.busy(lane) < self._limits.places and (first := self._next(lane)) is not None:
                self._waiting.remove(first)
                self._seated.append(first)
                first.granted.set_result(None)

    def _move(self, seat: LaneSeat) -> None:
        """Let a task go on in the long lane, for as long as a job may, unless it is being ended."""
        if seat.end is not None:
            if seat.end.expired():
                return
            seat.end.reschedule(seat.last)
        seat.lane = "long"
        if seat.worker is not None:
            seat.worker.give_way(_NICE["long"])

    def _next(self, lane: Lane) -> LaneSeat | None:
        """Return the first seat in a lane of those whose clients have least under way."""
        under_way = Counter(seat.client for seat in self._seated if seat.lane == lane)
        waiting = [seat for seat in self._waiting if seat.lane == lane and not seat.granted.done()]
        return min(waiting, key=lambda seat: under_way[seat.client], default=None)


def _too_long(seconds: float) -> TookTooLongError:
    remedy = "ask for less at a time, or let the service give jobs more time"
    return TookTooLongError(f"took longer than the {seconds:g} s that it may", remedy=remedy)
