"""Computations: each question is computed once at a time, however many wait for its answer, for as long as any does."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from helmsman.schemas.errors import HelmError
from helmsman.service.planner.computing.answer import WorkerAnswer
from helmsman.service.planner.computing.pool import Lane, LaneSeat, Work, WorkerPool
from helmsman.service.planner.problems import internal_problem, problem_of


@dataclass(eq=False)
class Computation:
    """Work under way. `answer`: comes when it is done; `begun`: set once a process is at it, or it has ended; `done`
    of `total` parts are; `listeners` hear of progress."""

    work: Work
    answer: asyncio.Future[WorkerAnswer]
    seat: LaneSeat
    waiters: int = 0
    begun: asyncio.Event = field(default_factory=asyncio.Event)
    done: int = 0
    total: int | None = None
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
            loop = asyncio.get_running_loop()
            computation = Computation(work, loop.create_future(), LaneSeat(work.client, lane, loop.create_future()))
            self._under_way[work.key] = computation
            self._tasks[computation] = asyncio.create_task(self._run(computation))
        computation.waiters += 1
        try:
            yield computation
        finally:
            computation.waiters -= 1
            if not computation.waiters and not computation.answer.done():
                self._forget(computation)
                self._tasks[computation].cancel()

    @property
    def under_way(self) -> int:
        """Return the number of questions that are being computed, or wait for it."""
        return len(self._tasks)

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

        def progress(done: int, total: int) -> None:
            computation.done, computation.total = done, total
            computation.changed()

        try:
            async with self._pool.taken(computation.seat):
                computation.begun.set()
                return await self._pool.run(computation.seat, work, progress)
        except HelmError as error:
            problem = problem_of(error)
        except Exception as error:  # a mistake of ours is an answer too: somebody waits
            problem = internal_problem(error)
        return WorkerAnswer(problem.to_json(indent=None).encode(), problem.status, spent=True)

    def _forget(self, computation: Computation) -> None:
        """From now on the same question would be computed again."""
        if self._under_way.get(computation.work.key) is computation:
            del self._under_way[computation.work.key]
