"""The desk at which jobs are taken in, followed, told about and given out.

A job is in the database before its client hears of it, and its result on the disk before it is done. What a server
leaves unfinished, the next one queues again. The question of a job that waits is in the database alone.

An attempt counts against a job where the process at it died: a job that kills its process is not begun for ever. It
counts for none where the server alone was killed, however often: the process at the job outlives that server, and says
so in the database before another server can begin. What kills both at once - no memory left in a container that ends as
a whole, a machine without power - may be the job or not, so that a job survives it many times, but not for ever."""

import asyncio
import logging
import time
from collections.abc import Coroutine
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any
from uuid import uuid4

from helmsman.schemas.errors import HelmError
from helmsman.schemas.job import JobKind, PlannerJob
from helmsman.service.http.refusals import RefusedError
from helmsman.service.planner.computing.computations import Computation, Computations
from helmsman.service.planner.computing.pool import Work
from helmsman.service.planner.computing.worker import WorkerEndedError
from helmsman.service.planner.jobs.admission import JobAdmission
from helmsman.service.planner.jobs.book import JobBook
from helmsman.service.planner.jobs.database import JobDatabase, JobRow
from helmsman.service.planner.jobs.live_job import ENDED, LiveJob, job_document
from helmsman.service.planner.jobs.store import StorePlaces
from helmsman.service.planner.jobs.strays import remove_settled, remove_settled_work, set_aside
from helmsman.service.planner.options import ClientLimits, JobLimits
from helmsman.service.planner.problems import internal_problem, problem_of

_log = logging.getLogger("helmsman.planner")

_LISTED = 200
"""Jobs that a list has at most."""
_MOST_ATTEMPTS = 100
"""Times that the process at a job may die, mostly together with its server, before the job is held to be the reason:
many, since who kills a service may well kill all of its processes. One that dies alone ends its job the second time."""


class JobDesk:
    """All jobs of a store. Used in one event loop."""

    def __init__(
        self, database: JobDatabase, results: Path, computations: Computations, limits: JobLimits, clients: ClientLimits
    ) -> None:
        self._database, self._results, self._computations = database, results, computations
        self._work, self._limits = StorePlaces(results.parent).work, limits
        self._book = JobBook(database, results)
        self._live: dict[str, LiveJob] = {}
        self._admission = JobAdmission(limits, clients, self.unfinished)
        self._tasks: set[asyncio.Task[None]] = set()

    async def recover(self) -> int:
        """Queue again what a server has left, unless that has happened too often; returns the number of jobs."""
        for job in await self._book.in_thread(self._database.recover):
            row = await self._book.in_thread(self._database.job, job)
            assert row is not None, "nobody else changes the store"
            if row.attempts >= _MOST_ATTEMPTS:
                problem = f"the process that computed this was killed {row.attempts} times"
                error = problem_of(WorkerEndedError(problem, remedy="ask for less at a time"))
                await self._book.in_thread(self._database.fail, job, error.to_json(indent=None), time.time())
                continue
            self._follow(LiveJob(row))
        return len(self._live)

    def unfinished(self, client: str | None = None) -> int:
        """Return the number of jobs that have not ended, of one client or all."""
        rows = [live.row for live in self._live.values() if live.row.state not in ENDED]
        return sum(client in (None, row.client) for row in rows)

    def running(self) -> int:
        """Return the number of jobs that run."""
        return sum(live.row.state == "running" for live in self._live.values())

    def check(self, client: str) -> None:
        """Raise RefusedError (429) where a client, or all together, may have no more jobs."""
        self._admission.check(client)

    async def answered(self, key: str) -> bool:
        """Return whether a job with this key would be done at once."""
        return await self._known(key) is not None

    async def submit(self, kind: JobKind, key: str, question: bytes, client: str, points: int) -> PlannerJob:
        """Take in a job. One whose question has been answered is done at once. Raises RefusedError, HelmError."""
        with self._admission.admitted(client):
            known = await self._known(key)
            row = _new_row(kind, key, client, points)
            if known is not None:
                row = replace(row, state="done", started=row.created, ended=row.created)
                row = replace(row, results=known.results, bytes=known.bytes)
                await self._book.in_thread(self._database.add, row, b"")
                return job_document(row)
            await self._book.in_thread(self._database.add, row, question)
            return self._follow(LiveJob(row)).document()

    async def adopt(
        self, kind: JobKind, computation: Computation, question: bytes, client: str, points: int
    ) -> PlannerJob:
        """Take in, as a job, what computes a question already. Raises RefusedError, HelmError."""
        with self._admission.admitted(client):
            row = _new_row(kind, computation.key, client, points)
            await self._book.in_thread(self._database.add, row, question)
            return self._follow(LiveJob(row), computation).document()

    async def job(self, job: str, client: str) -> PlannerJob:
        """Return a job of a client. Raises RefusedError (404) for one that is none of its jobs."""
        live = self._live.get(job)
        return live.document() if live and live.row.client == client else job_document(await self._row(job, client))

    async def jobs(self, client: str) -> tuple[PlannerJob, ...]:
        """Return the jobs of a client, the newest first."""
        rows = await self._book.in_thread(self._database.of, client, _LISTED)
        return tuple(self._live[row.id].document() if row.id in self._live else job_document(row) for row in rows)

    async def live(self, job: str, client: str) -> LiveJob:
        """Return a job of a client to be watched, ended or not. Raises RefusedError (404)."""
        live = self._live.get(job)
        return live if live and live.row.client == client else LiveJob(await self._row(job, client))

    async def cancel(self, job: str, client: str) -> PlannerJob:
        """End a job; one that has ended stays as it is. Raises RefusedError (404), and HelmError where the store cannot
        say that it was cancelled: its computation is ended all the same, and the store says so as soon as it can."""
        live = self._live.get(job)
        if live is None or live.row.client != client:
            return job_document(await self._row(job, client))
        now = time.time() if live.row.ended is None else live.row.ended
        try:
            if await self._book.in_thread(self._database.cancel, job, now):
                live.end("cancelled", now)
        except HelmError as error:
            if live.row.state not in ENDED:
                live.recording = self._task(self._recorded(live))
                live.end("cancelled", now)
            if live.row.state == "cancelled":
                raise _unrecorded(error) from None
        return live.document()

    async def results(self, job: str, client: str) -> dict[str, Path]:
        """Return the files of a job's result by media type. Raises RefusedError: 404 before it is done, 409 where it
        never will be."""
        live = self._live.get(job)
        row = live.row if live and live.row.client == client else await self._row(job, client)
        if row.state in ("queued", "running"):
            raise RefusedError(404, "not_done", f"the job is {row.state}", retry_s=1)
        if row.state != "done":
            raise RefusedError(409, row.state, f"the job has {'failed' if row.state == 'failed' else 'been cancelled'}")
        paths = {media: self._results / digest for media, digest in row.results.items()}
        if not all(path.is_file() for path in paths.values()):
            raise RefusedError(404, "expired", "the result is not kept any more; ask again")
        return paths

    async def expire(self) -> None:
        """Forget jobs that ended long ago, and results that nobody needs any more. Raises HelmError where the store
        cannot be read or written, which is logged, as mistakes of ours are."""
        try:
            await self._expire()
        except HelmError as error:
            _log.warning("jobs that ended long ago are not removed: %s", error)
            raise
        except Exception as error:  # of ours: the next time comes all the same
            internal_problem(error)

    async def _expire(self) -> None:
        limits = self._limits
        before = time.time() - limits.seconds
        digests = await self._book.in_thread(self._database.expire, before, limits.ended, limits.bytes)
        await self._book.in_thread(remove_settled, [self._results / digest for digest in digests])
        keys = await self._book.in_thread(self._database.unfinished)
        await self._book.in_thread(remove_settled_work, self._work, set(keys.values()))

    async def close(self) -> None:
        """Follow no job any more: what has not ended is queued in the database, and the attempt that this ends counts
        for none."""
        live = list(self._live.values())
        tasks = [*(job.follower for job in live if job.follower is not None), *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        try:
            for job in live:
                await self._left(job)
        except HelmError as error:
            _log.warning("what became of jobs at the end of the service is not kept: %s", error)
        self._book.close()

    async def _left(self, live: LiveJob) -> None:
        """Record what the next server is to find of a job. Raises HelmError."""
        row = live.row
        if row.state == "running":
            await self._book.in_thread(self._database.queue, row.id, row.attempts - 1)
        elif live.recording is not None:
            await self._book.in_thread(self._database.cancel, row.id, row.ended)

    async def _known(self, key: str) -> JobRow | None:
        """Return a job that is done, has this key, and whose results are there."""
        row = await self._book.in_thread(self._database.answered, key)
        whole = row is not None and all((self._results / digest).is_file() for digest in row.results.values())
        return row if whole else None

    async def _row(self, job: str, client: str) -> JobRow:
        row = await self._book.in_thread(self._database.job, job)
        if row is None or row.client != client:
            raise RefusedError(404, "no_job", "there is no such job of yours")
        return row

    def _follow(self, live: LiveJob, computation: Computation | None = None) -> LiveJob:
        """Follow a job until it ends. From now on it waits for its computation, the one that is under way or done if it
        is given: who asked need not any more."""
        row, waiting = live.row, ExitStack()
        work = Work(row.key, row.kind, partial(self._book.in_thread, self._database.question, row.key), row.client)
        if computation is None:
            computation = waiting.enter_context(self._computations.waiting(work, "long"))
        else:
            waiting.enter_context(self._computations.joined(computation, work))
        self._live[row.id], live.computation = live, computation
        live.follower = asyncio.create_task(self._book.follow(live, computation))

        def ended(_: object) -> None:
            waiting.close()
            if live.recording is None:
                del self._live[row.id]
            if live.row.state in ("failed", "cancelled"):
                self._task(self._tidied(row.key, computation))

        live.follower.add_done_callback(ended)
        return live

    def _task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something beside, until the desk is closed."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _recorded(self, live: LiveJob) -> None:
        """Record that a job was cancelled, as soon as that can be written; until then it is known here alone."""
        await self._book.until_written(self._database.cancel, live.row.id, live.row.ended)
        live.recording = None
        del self._live[live.row.id]

    async def _tidied(self, key: str, computation: Computation) -> None:
        """Remove what a job that came to nothing has left, once nobody writes there, unless another one goes on."""
        await asyncio.wait({computation.answer})
        if any(live.row.key == key and live.row.state not in ENDED for live in self._live.values()):
            return
        place = set_aside(self._work / key)
        if place is not None:
            await asyncio.to_thread(rmtree, place, ignore_errors=True)


def _unrecorded(error: HelmError) -> HelmError:
    """Return what is told of a job that was cancelled where the store cannot say so."""
    told = "the job's computation is ended, but the store cannot say so yet, and a service that starts anew would begin"
    remedy = f"{error.remedy or 'see to the store'}; it is tried again until then"
    return type(error)(f"{told} it again: {error.message}", file=error.file, remedy=remedy)


def _new_row(kind: JobKind, key: str, client: str, points: int) -> JobRow:
    return JobRow(uuid4().hex, client, kind, key, points, "queued", 0, time.time(), None, None, None, {})
