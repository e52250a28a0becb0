"""A job that has not ended, as the server follows it."""

import asyncio
from dataclasses import dataclass, field, replace
from typing import Any

from helmsman.schemas.job import JobLinks, JobState, PlannerJob
from helmsman.schemas.problem import Problem
from helmsman.schemas.read import parse_document
from helmsman.service.planner.computing.computations import Computation
from helmsman.service.planner.jobs.database import JobRow

ENDED: tuple[JobState, ...] = ("done", "failed", "cancelled")
"""States that a job stays in."""


@dataclass(eq=False)
class LiveJob:
    """`computation`: at work for it, if one is; `follower`: waits for that; `recording`: is to record in the store that
    the job was cancelled; `revision`: the number of changes that were told."""

    row: JobRow
    computation: Computation | None = None
    follower: asyncio.Task[None] | None = None
    recording: asyncio.Task[None] | None = None
    revision: int = 0
    _told: asyncio.Event = field(default_factory=asyncio.Event)

    def change(self, **changes: Any) -> None:
        """Change what is known of the job, and tell it."""
        self.row = replace(self.row, **changes)
        self.tell()

    def end(self, state: JobState, now: float) -> None:
        """Let the job have ended, and nobody wait for its computation any more."""
        self.change(state=state, ended=now)
        if self.follower is not None:
            self.follower.cancel()

    def tell(self) -> None:
        """Wake who waits for a change."""
        self.revision += 1
        told, self._told = self._told, asyncio.Event()
        told.set()

    async def changed(self, revision: int) -> None:
        """Wait until there has been a change after the one with this number."""
        while self.revision == revision:
            await self._told.wait()

    @property
    def event_id(self) -> str:
        """Return the name of the last change. The end of a job is called the same by whoever tells of it: the server
        that followed the job, or one that has read of it."""
        attempt = f"{self.row.attempts}-{self.row.state}"
        return attempt if self.row.state in ENDED else f"{attempt}-{self.revision}"

    def document(self) -> PlannerJob:
        """Return the job as clients see it."""
        computation = self.computation
        return job_document(self.row, *((0, None) if computation is None else (computation.done, computation.total)))


def job_document(row: JobRow, done: int = 0, total: int | None = None) -> PlannerJob:
    """Return a job as clients see it."""
    path = f"/v1/jobs/{row.id}"
    finished = row.state == "done"
    return PlannerJob(
        id=row.id,
        kind=row.kind,
        state=row.state,
        done=max(1, row.points) if finished else done,
        total=max(1, row.points) if finished else total,
        attempts=row.attempts,
        created=row.created,
        started=row.started,
        ended=row.ended,
        error=None if row.error is None else parse_document(Problem, row.error.encode(), "problem"),
        links=JobLinks(self=path, events=f"{path}/events", result=f"{path}/result" if finished else None),
    )
