"""Computations: each question is computed once at a time, however many wait for its answer, for as long as any does.

The question is with those who wait: a request holds it in memory until it is over, and a job reads it from the store
when a process begins with it, so that queued jobs take no memory."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from helmsman.schemas.errors import HelmError
from helmsman.service.planner.computing.answer import WorkerAnswer
from helmsman.service.planner.computing.pool import DisplacedError, Lane, LaneSeat, Work, WorkerPool
from helmsman.service.planner.computing.worker import WorkerEndedError
from helmsman.service.planner.problems import internal_problem, problem_of


@dataclass(eq=False)
class Computation:
    """Work under way. `answer`: comes when it is done; `waiting`: the same work as each gave it who waits;
    `begun`: set once a process is at it for the first time, or it has ended; `running`: one is, or it has ended;
    `kills`: processes that ended while they were at it; `done` of `total` parts are; `listeners` hear of changes."""

    key: str
    kind: str
    answer: asyncio.Future[WorkerAnswer]
    seat: LaneSeat
    waiting: list[Work] = field(default_factory=list)
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    running: bool = False
    kills: int = 0
    done: int = 0
    total: int | None = None
    listeners: list[Callable[[], None]] = field(default_factory=list)

    def changed(self) -> None:
        """Tell all who listen."""
        for listener in tuple(self.listeners):
            listener()


class Computations:
    """All computations of a service. `keep` is given every answer with the key and kind of its question. Used in one
    event loop."""

    def __init__(self, pool: WorkerPool, keep: Callable[[str, str, WorkerAnswer], None]) -> None:
        self._pool, self._keep = pool, keep
        self._under_way: dict[str, Computation] = {}
        self._tasks: dict[Computation, asyncio.Task[None]] = {}

    @contextmanager
    def waiting(self, work: Work, lane: Lane) -> Iterator[Computation]:
        """While this lasts, the work is under way or done; it ends when nobody waits for it any more."""
        computation = self._under_way.get(work.key)
        if computation is None:
            future: asyncio.Future[WorkerAnswer] = asyncio.get_running_loop().create_future()
            computation = Computation(work.key, work.kind, future, _new_seat(work.client, lane))
            self._under_way[work.key] = computation
            self._tasks[computation] = asyncio.create_task(self._run(computation))
        with self.joined(computation, work):
            yield computation

    @contextmanager
    def joined(self, computation: Computation, work: Work) -> Iterator[None]:
        """While this lasts, one more waits for a computation, which may be done; no other is begun."""
        computation.waiting.append(work)
        try:
            yield
        finally:
            computation.waiting.remove(work)
            if not computation.waiting and not computation.answer.done():
                self._forget(computation)
                self._tasks[computation].cancel()

    @property
    def under_way(self) -> int:
        """Return the number of questions that are being computed, or wait for it."""
        return len(self._tasks)

    def has(self, key: str) -> bool:
        """Return whether a question is being computed, or waits for it."""
        return key in self._under_way

    def held(self, client: str | None = None) -> int:
        """Return the bytes in memory of the questions that are under way, of one client or all."""
        works = [work for computation in self._tasks for work in computation.waiting if client in (None, work.client)]
        return sum(len(work.question) for work in works if isinstance(work.question, bytes))

    def promote(self, computation: Computation) -> None:
        """Let it be work that nobody sits and waits for."""
        self._pool.promote(computation.seat)

    async def close(self) -> None:
        """End all that is under way."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, computation: Computation) -> None:
        try:
            answer = await self._answered(computation)
            if not answer.spent:
                self._keep(computation.key, computation.kind, answer)
            if not computation.answer.done():
                computation.answer.set_result(answer)
        except asyncio.CancelledError:
            computation.answer.cancel()
            raise
        finally:
            self._forget(computation)
            del self._tasks[computation]
            computation.running = True
            computation.begun.set()
            computation.changed()

    async def _answered(self, computation: Computation) -> WorkerAnswer:
        """Return the answer, which may be a problem."""
        try:
            while True:
                try:
                    return await self._attempt(computation)
                except DisplacedError:
                    pass
                except WorkerEndedError:
                    if computation.seat.lane == "quick" or computation.kills:
                        raise
                    computation.kills += 1
                computation.running, computation.done = False, 0
                computation.seat = _new_seat(computation.seat.client, "long")
                computation.changed()
        except HelmError as error:
            problem = problem_of(error)
        except Exception as error:  # a mistake of ours is an answer too: somebody waits
            problem = internal_problem(error)
        return WorkerAnswer(problem.to_json(indent=None).encode(), problem.status, spent=True)

    async def _attempt(self, computation: Computation) -> WorkerAnswer:
        def progress(done: int, total: int | None) -> None:
            computation.done, computation.total = done, total
            computation.changed()

        async with self._pool.taken(computation.seat):
            computation.running = True
            computation.begun.set()
            computation.changed()
            return await self._pool.run(computation.seat, _handiest(computation.waiting), progress)

    def _forget(self, computation: Computation) -> None:
        """From now on the same question would be computed again."""
        if self._under_way.get(computation.key) is computation:
            del self._under_way[computation.key]


def _handiest(works: Sequence[Work]) -> Work:
    """Return one of the same works whose question is in memory, or else the first."""
    return next((work for work in works if isinstance(work.question, bytes)), works[0])


def _new_seat(client: str, lane: Lane) -> LaneSeat:
    return LaneSeat(client, lane, asyncio.get_running_loop().create_future())
