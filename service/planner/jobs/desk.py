"""The desk at which jobs are taken in, followed, told about and given out.

A job is in the database before its client hears of it, and its result on the disk before it is done. What a server
leaves unfinished, the next one queues again."""

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import Any, TypeVar
from uuid import uuid4

from helmsman.schemas.errors import HelmError
from helmsman.schemas.job import JobKind, PlannerJob
from helmsman.service.http.refusals import RefusedError
from helmsman.service.planner.computing.answer import JSON, WorkerAnswer
from helmsman.service.planner.computing.computations import Computation, Computations
from helmsman.service.planner.computing.pool import Work
from helmsman.service.planner.computing.results import store_result
from helmsman.service.planner.computing.worker import WorkerEndedError
from helmsman.service.planner.jobs.admission import JobAdmission
from helmsman.service.planner.jobs.database import JobDatabase, JobRow, UnwritableStoreError
from helmsman.service.planner.jobs.live_job import LiveJob, job_document
from helmsman.service.planner.jobs.store import StorePlaces
from helmsman.service.planner.jobs.strays import remove_settled, remove_settled_work, set_aside
from helmsman.service.planner.options import ClientLimits, JobLimits
from helmsman.service.planner.problems import internal_problem, problem_of

_log = logging.getLogger("helmsman.planner")

ResultT = TypeVar("ResultT")

_LISTED = 200
"""Jobs that a list has at most."""
_RETRY_S = 2.0
"""Seconds until what could not be written is tried again."""
_TRIES = 5
"""The number of times that a result is tried to be written before the job fails for it."""
_MOST_ATTEMPTS = 100
"""Servers that may end while a job runs before the job is held to be the reason: many, since no job may be lost where a
server is killed again and again."""


class JobDesk:
    """All jobs of a store. Used in one event loop; a thread of its own speaks with the database."""

    def __init__(
        self, database: JobDatabase, results: Path, computations: Computations, limits: JobLimits, clients: ClientLimits
    ) -> None:
        self._database, self._results, self._computations = database, results, computations
        self._work, self._limits = StorePlaces(results.parent).work, limits
        self._thread = ThreadPoolExecutor(1, "jobs")
        self._live: dict[str, LiveJob] = {}
        self._admission = JobAdmission(limits, clients, self.unfinished)
        self._tidying: set[asyncio.Task[None]] = set()

    async def recover(self) -> int:
        """Queue again what a server has left, unless that has happened too often; returns the number of jobs."""
        for job in await self._in_thread(self._database.recover):
            row = await self._in_thread(self._database.job, job)
            assert row is not None, "nobody else changes the store"
            if row.attempts >= _MOST_ATTEMPTS:
                problem = f"the service ended {row.attempts} times while this was computed"
                error = problem_of(WorkerEndedError(problem, remedy="ask for less at a time"))
                await self._in_thread(self._database.fail, job, error.to_json(indent=None), time.time())
                continue
            question = await self._in_thread(self._database.question, job)
            self._follow(LiveJob(row), Work(row.key, row.kind, question, row.client))
        return len(self._live)

    def unfinished(self, client: str | None = None) -> int:
        """Return the number of jobs that have not ended, of one client or all."""
        return sum(client is None or live.row.client == client for live in self._live.values())

    def running(self) -> int:
        """Return the number of jobs that run."""
        return sum(live.row.state == "running" for live in self._live.values())

    def check(self, client: str) -> None:
        """Raise RefusedError (429) where a client, or all together, may have no more jobs."""
        self._admission.check(client)

    async def answered(self, key: str) -> bool:
        """Return whether a job with this key would be done at once."""
        return await self._known(key) is not None

    async def submit(self, kind: JobKind, work: Work, points: int) -> PlannerJob:
        """Take in a job. One whose question has been answered is done at once. Raises RefusedError, HelmError."""
        with self._admission.admitted(work.client):
            known = await self._known(work.key)
            row = _new_row(kind, work, points)
            if known is not None:
                row = replace(row, state="done", started=row.created, ended=row.created)
                row = replace(row, results=known.results, bytes=known.bytes)
                await self._in_thread(self._database.add, row, b"")
                return job_document(row)
            await self._in_thread(self._database.add, row, work.question)
            return self._follow(LiveJob(row), work).document()

    async def adopt(self, kind: JobKind, computation: Computation, points: int) -> PlannerJob:
        """Take in, as a job, what is under way already. Raises RefusedError, HelmError."""
        with self._admission.admitted(computation.work.client):
            row = _new_row(kind, computation.work, points)
            await self._in_thread(self._database.add, row, computation.work.question)
            return self._follow(LiveJob(row), computation.work, computation).document()

    async def job(self, job: str, client: str) -> PlannerJob:
        """Return a job of a client. Raises RefusedError (404) for one that is none of its jobs."""
        live = self._live.get(job)
        return live.document() if live and live.row.client == client else job_document(await self._row(job, client))

    async def jobs(self, client: str) -> tuple[PlannerJob, ...]:
        """Return the jobs of a client, the newest first."""
        rows = await self._in_thread(self._database.of, client, _LISTED)
        return tuple(self._live[row.id].document() if row.id in self._live else job_document(row) for row in rows)

    async def live(self, job: str, client: str) -> LiveJob:
        """Return a job of a client to be watched, ended or not. Raises RefusedError (404)."""
        live = self._live.get(job)
        return live if live and live.row.client == client else LiveJob(await self._row(job, client))

    async def cancel(self, job: str, client: str) -> PlannerJob:
        """End a job; one that has ended stays as it is. Raises RefusedError (404)."""
        live = self._live.get(job)
        if live is None or live.row.client != client:
            return job_document(await self._row(job, client))
        now = time.time()
        if await self._in_thread(self._database.cancel, job, now):
            live.change(state="cancelled", ended=now)
            if live.follower is not None:
                live.follower.cancel()
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
        digests = await self._in_thread(self._database.expire, before, limits.ended, limits.bytes)
        await self._in_thread(remove_settled, [self._results / digest for digest in digests])
        keys = await self._in_thread(self._database.unfinished)
        await self._in_thread(remove_settled_work, self._work, set(keys.values()))

    async def close(self) -> None:
        """Follow no job any more: what has not ended stays so in the database."""
        followers = [live.follower for live in self._live.values() if live.follower is not None]
        tasks = [*followers, *self._tidying]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._thread.shutdown()
        self._database.close()

    async def _known(self, key: str) -> JobRow | None:
        """Return a job that is done, has this key, and whose results are there."""
        row = await self._in_thread(self._database.answered, key)
        whole = row is not None and all((self._results / digest).is_file() for digest in row.results.values())
        return row if whole else None

    async def _row(self, job: str, client: str) -> JobRow:
        row = await self._in_thread(self._database.job, job)
        if row is None or row.client != client:
            raise RefusedError(404, "no_job", "there is no such job of yours")
        return row

    async def _in_thread(self, function: Callable[..., ResultT], *arguments: Any) -> ResultT:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    def _follow(self, live: LiveJob, work: Work, computation: Computation | None = None) -> LiveJob:
        """Follow a job until it ends. From now on it waits for its computation, the one that is under way or done if it
        is given: who asked need not any more."""
        waiting = ExitStack()
        if computation is None:
            computation = waiting.enter_context(self._computations.waiting(work, "long"))
        else:
            waiting.enter_context(self._computations.joined(computation))
        computation.listeners.append(live.tell)
        self._live[live.row.id], live.computation = live, computation
        live.follower = asyncio.create_task(self._followed(live, computation))

        def ended(_: object) -> None:
            waiting.close()
            computation.listeners.remove(live.tell)
            del self._live[live.row.id]
            if live.row.state in ("failed", "cancelled"):
                tidying = asyncio.create_task(self._tidied(work.key, computation))
                self._tidying.add(tidying)
                tidying.add_done_callback(self._tidying.discard)

        live.follower.add_done_callback(ended)
        return live

    async def _tidied(self, key: str, computation: Computation) -> None:
        """Remove what a job that came to nothing has left, once nobody writes there, unless another one goes on."""
        await asyncio.wait({computation.answer})
        if any(live.row.key == key for live in self._live.values()):
            return
        place = set_aside(self._work / key)
        if place is not None:
            await asyncio.to_thread(rmtree, place, ignore_errors=True)

    async def _followed(self, live: LiveJob, computation: Computation) -> None:
        await computation.begun.wait()
        await self._begun(live)
        await self._ended(live, await asyncio.shield(computation.answer))

    async def _begun(self, live: LiveJob) -> None:
        now = time.time()
        await self._until_written(self._database.begin, live.row.id, now)
        live.change(state="running", started=now, attempts=live.row.attempts + 1)

    async def _ended(self, live: LiveJob, answer: WorkerAnswer) -> None:
        """Record how a job ended."""
        error = answer.content.decode()
        if answer.status < 400:
            try:
                results, size = await self._kept(answer)
            except HelmError as problem:
                error = problem_of(problem).to_json(indent=None)
            except Exception as mistake:  # of ours: a job ends all the same
                error = internal_problem(mistake).to_json(indent=None)
            else:
                now = time.time()
                await self._until_written(self._database.complete, live.row.id, results, size, now)
                live.change(state="done", results=results, bytes=size, ended=now)
                return
        now = time.time()
        await self._until_written(self._database.fail, live.row.id, error, now)
        live.change(state="failed", error=error, ended=now)

    async def _kept(self, answer: WorkerAnswer) -> tuple[dict[str, str], int]:
        """Return the files of an answer, and their bytes, written by now. Raises HelmError where they cannot be."""
        if answer.files:
            files = dict(answer.files)
            try:
                return files, sum((self._results / digest).stat().st_size for digest in files.values())
            except OSError as error:
                problem = f"the result that was computed cannot be read: {error.strerror}"
                raise UnwritableStoreError(problem, remedy="ask again") from None
        for left in reversed(range(_TRIES)):
            try:
                digest = await asyncio.to_thread(store_result, self._results, answer.content)
                return {JSON: digest}, len(answer.content)
            except HelmError:
                if not left:
                    raise
                await asyncio.sleep(_RETRY_S)
        raise AssertionError("it was written or not")

    async def _until_written(self, function: Callable[..., bool], *arguments: Any) -> None:
        """Change a job in the database, as soon as that can be written."""
        while True:
            try:
                await self._in_thread(function, *arguments)
                return
            except HelmError:
                await asyncio.sleep(_RETRY_S)


def _new_row(kind: JobKind, work: Work, points: int) -> JobRow:
    return JobRow(uuid4().hex, work.client, kind, work.key, points, "queued", 0, time.time(), None, None, None, {})
