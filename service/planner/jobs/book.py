"""The book of jobs: what becomes of each is written into the database, as soon as that can be written, and its result
into a file before that."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from helmsman.schemas.errors import HelmError
from helmsman.service.planner.computing.answer import JSON, WorkerAnswer
from helmsman.service.planner.computing.computations import Computation
from helmsman.service.planner.computing.results import store_result
from helmsman.service.planner.jobs.database import JobDatabase
from helmsman.service.planner.jobs.live_job import LiveJob
from helmsman.service.planner.problems import UnwritableStoreError, internal_problem, problem_of

ResultT = TypeVar("ResultT")

_RETRY_S = 2.0
"""Seconds until what could not be written is tried again."""
_TRIES = 5
"""The number of times that a result is tried to be written before the job fails for it."""


class JobBook:
    """Records jobs of a database, with results in a folder. Used in one event loop; a thread of its own speaks with the
    database."""

    def __init__(self, database: JobDatabase, results: Path) -> None:
        self.database, self._results = database, results
        self._thread = ThreadPoolExecutor(1, "jobs")

    async def in_thread(self, function: Callable[..., ResultT], *arguments: Any) -> ResultT:
        """Return what a function of the database gives. Raises HelmError where the store cannot be read or written."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *arguments)

    async def until_written(self, function: Callable[..., bool], *arguments: Any) -> None:
        """Change a job in the database, as soon as that can be written."""
        while True:
            try:
                await self.in_thread(function, *arguments)
                return
            except HelmError:
                await asyncio.sleep(_RETRY_S)

    def close(self) -> None:
        """Close the database."""
        self._thread.shutdown()
        self.database.close()

    async def follow(self, live: LiveJob, computation: Computation) -> None:
        """Let a job wait and run as its computation does, until that is over, and record how it ended."""
        news, before = asyncio.Event(), live.row.attempts - computation.kills
        computation.listeners += (news.set, live.tell)
        try:
            over = False
            while not over:
                news.clear()
                over = computation.answer.done()
                if computation.running:
                    await self._run(live, before + computation.kills + 1)
                else:
                    await self._wait(live, before + computation.kills)
                if not over:
                    await news.wait()
        finally:
            for listener in (news.set, live.tell):
                computation.listeners.remove(listener)
        await self._ended(live, await asyncio.shield(computation.answer))

    async def _run(self, live: LiveJob, attempt: int) -> None:
        """Let a job run, unless it does already."""
        if (live.row.state, live.row.attempts) != ("running", attempt):
            now = time.time()
            live.change(state="running", attempts=attempt, started=now)
            await self.until_written(self.database.run, live.row.id, attempt, now)

    async def _wait(self, live: LiveJob, attempts: int) -> None:
        """Let a job wait, after so many attempts that were not its end, unless it does already."""
        if live.row.state != "queued":
            live.change(state="queued", attempts=attempts, started=None)
            await self.until_written(self.database.queue, live.row.id, attempts)

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
                await self.until_written(self.database.complete, live.row.id, results, size, now)
                live.change(state="done", results=results, bytes=size, ended=now)
                return
        now = time.time()
        await self.until_written(self.database.fail, live.row.id, error, now)
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
