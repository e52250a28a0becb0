"""Jobs of a planner service, as who asked follows them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from httpx2 import Response

from helmsman.client.connection import BUSY, JSON, Connection
from helmsman.client.errors import ServiceError, error_of
from helmsman.schemas.base import Document
from helmsman.schemas.errors import HardwareUnavailableError, HelmError
from helmsman.schemas.job import PlannerJob
from helmsman.schemas.problem import Problem
from helmsman.schemas.read import parse_document

ResultT = TypeVar("ResultT", bound=Document)

Told = Callable[[PlannerJob], None]
"""Hears how far a job is."""

ENDED = ("done", "failed", "cancelled")
_LOST_S = 60.0
"""Seconds for which a service that is not there is looked for again: it may be starting anew, and goes on then."""
_AGAIN_S = 0.5
_STREAM_S = 5.0
"""Seconds for which a stream is asked for where the service has no more of them; then the job itself is looked at."""


@dataclass(frozen=True, slots=True)
class JobHandle(Generic[ResultT]):
    """A job with a result of type `kind`; `first`: the job as it was accepted."""

    connection: Connection
    kind: type[ResultT]
    first: PlannerJob

    def job(self) -> PlannerJob:
        """Return how far the job is now. Raises ServiceError for one that the service no longer has."""
        return self.connection.document(PlannerJob, self.first.links.self)

    def cancel(self) -> PlannerJob:
        """Ask the service to end the job, and return it."""
        return self.connection.read(PlannerJob, self.connection.ask("DELETE", self.first.links.self))

    def follow(self) -> Iterator[PlannerJob]:
        """Yield the job whenever it got further, until it has ended.

        A stream that breaks is opened again for a minute; where the service has too many of them, or is just about to
        stop, the job is asked for from time to time. Raises HardwareUnavailableError where the service stays away."""
        seen, lost_since = self.first, None
        yield seen
        while seen.state not in ENDED:
            try:
                for job in self._news():
                    lost_since = None
                    if job != seen:
                        seen = job
                        yield seen
            except HardwareUnavailableError:
                now = self.connection.clock()
                lost_since = now if lost_since is None else lost_since
                if now - lost_since > _LOST_S:
                    raise
            if seen.state not in ENDED:
                self.connection.sleep(_AGAIN_S)

    def result(self, tell: Told | None = None) -> ResultT:
        """Wait for the end and return the result; `tell` hears of progress. Raises the error for which the job failed,
        ServiceError where it was cancelled."""
        last = self.first
        for job in self.follow():
            last = job
            if tell is not None:
                tell(job)
        if last.state != "done":
            raise _ended_without(last)
        return self.connection.read(self.kind, self._kept(JSON))

    def content(self, media: str = JSON) -> bytes:
        """Return the result of a job that is done, as JSON or in another form that it has."""
        return self._kept(media).content

    def _news(self) -> Iterator[PlannerJob]:
        """Yield the job whenever the service tells of it, and as it is once the stream is over or refused."""
        try:
            for event in self.connection.events(self.first.links.events, _STREAM_S):
                job = parse_document(PlannerJob, event.data.encode(), "event")
                yield job
                if job.state in ENDED:
                    return
        except ServiceError as refusal:
            if refusal.status not in BUSY:
                raise
        yield self.job()

    def _kept(self, media: str) -> Response:
        path = self.first.links.result or f"{self.first.links.self}/result"
        return self.connection.ask("GET", path, accept=media)


def _ended_without(job: PlannerJob) -> HelmError:
    if job.error is not None:
        return error_of(job.error)
    detail = "the job was cancelled" if job.state == "cancelled" else "the job failed"
    return ServiceError(
        Problem(type=f"urn:helm:problem:{job.state}", title=detail, status=409, detail=detail, code=job.state)
    )
