"""Computations: each question is computed once at a time, however many wait for its answer, for as long as any does."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from helmsman.schemas.errors import HelmError
from helmsman.service.planner.computing.answer import WorkerAnswer
from helmsman.service.planner.computing.pool import DisplacedError, Lane, LaneSeat, Work, WorkerPool
from helmsman.service.planner.computing.worker import Progress, WorkerEndedError
from helmsman.service.planner.problems import internal_problem, problem_of


@dataclass(eq=False)
class Computation:
    """Work under way. `answer`: comes when it is done; `begun`: set once a process is at it, or it has ended; `done`
    of `total` parts are; `lost`: a process ended that was at it; `listeners` hear of progress."""

    work: Work
    answer: asyncio.Future[WorkerAnswer]
    seat: LaneSeat
    waiters: int = 0
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    done: int = 0
    total: int | None = None
    lost: bool = False
    listeners: list[Callable[[], None]] = field(default_factory=list)

    def changed(self) -> None:
        """Tell all who listen of progress."""
        for listener in tuple(self.listeners):
            listener()


class Computations:
    """All computations of a service. `keep` is given every answer with its question. Used in one event loop."""

    def __init__(self, pool: WorkerPool, keep: Callable[[Work, WorkerAnswer], None]) -> None:
        self._pool, self._keep = pool, keep
        self._under_way: dict[str, Computation] = {}
        self._tasks: dict[Computation, asyncio.Task[None]] = {}

    @contextmanager
    def waiting(self, work: Work, lane: Lane) -> Iterator[Computation]:
        """While this lasts, the work is under way or done; it ends when nobody waits for it any more."""
        computation = self._under_way.get(work.key)
        if computation is None:
            computation = Computation(work, asyncio.get_running_loop().create_future(), _new_seat(work, lane))
            self._under_way[work.key] = computation
            self._tasks[computation] = asyncio.create_task(self._run(computation))
        with self.joined(computation):
            yield computation

    @contextmanager
    def joined(self, computation: Computation) -> Iterator[None]:
        """While this lasts, one more waits for a computation, which may be done; no other is begun."""
        computation.waiters += 1
        try:
            yield
        finally:
            computation.waiters -= 1
            if not computation.waiters and not computation.answer.done():
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
        """Return the bytes of the questions that are under way, of one client or all."""
        works = [computation.work for computation in self._tasks]
        return sum(len(work.question) for work in works if client in (None, work.client))

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
                self._keep(computation.work, answer)
            if not computation.answer.done():
                computation.answer.set_result(answer)
        except asyncio.CancelledError:
            computation.answer.cancel()
            raise
        finally:
            self._forget(computation)
            del self._tasks[computation]
            computation.begun.set()

    async def _answered(self, computation: Computation) -> WorkerAnswer:
        """Return the answer, which may be a problem."""
        work = computation.work

        def progress(done: int, total: int | None) -> None:
            computation.done, computation.total = done, total
            computation.changed()

        try:
            while True:
                try:
                    return await self._attempt(computation, progress)
                except DisplacedError:
                    computation.seat = _new_seat(work, "long")
                except WorkerEndedError:
                    if computation.seat.lane == "quick" or computation.lost:
                        raise
                    computation.lost, computation.seat = True, _new_seat(work, "long")
                progress(0, computation.total)
        except HelmError as error:
            problem = problem_of(error)
        except Exception as error:  # a mistake of ours is an answer too: somebody waits
            problem = internal_problem(error)
        return WorkerAnswer(problem.to_json(indent=None).encode(), problem.status, spent=True)

    async def _attempt(self, computation: Computation, progress: Progress) -> WorkerAnswer:
        async with self._pool.taken(computation.seat):
            computation.begun.set()
            return await self._pool.run(computation.seat, computation.work, progress)

    def _forget(self, computation: Computation) -> None:
        """From now on the same question would be computed again."""
        if self._under_way.get(computation.work.key) is computation:
            del self._under_way[computation.work.key]


def _new_seat(work: Work, lane: Lane) -> LaneSeat:
    return LaneSeat(work.client, lane, asyncio.get_running_loop().create_future())
