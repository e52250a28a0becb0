"""Jobs: how far they are, what comes out, and their end."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path as FilePath
from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from helmsman.schemas.job import PlannerJob, PlannerJobs
from helmsman.service.http.refusals import RefusedError
from helmsman.service.planner.computing.answer import JSON
from helmsman.service.planner.jobs.live_job import ENDED, LiveJob
from helmsman.service.planner.routes.exchange import client_in, document_response, has_tag, service_of
from helmsman.service.planner.routes.operations import HttpOperation, JobResult, operation
from helmsman.service.planner.service import PlannerService

router = APIRouter()

_BEAT_S = 15.0
"""Seconds without an event after which a comment says that the stream lives."""
_APART_S = 0.1
"""Seconds between two events of a stream: what comes in between is in the later one."""
_PIECE = 2**18

JobInPath = Annotated[str, Path(pattern="^[0-9a-f]{32}$")]


@operation(router, HttpOperation("GET", "/v1/jobs", "List jobs", PlannerJobs))
async def jobs(request: Request) -> Response:
    """List the client's own jobs, the newest first."""
    listed = await service_of(request).desk.jobs(client_in(request))
    return document_response(request, PlannerJobs(jobs=listed))


@operation(router, HttpOperation("GET", "/v1/jobs/{job}", "Show a job", PlannerJob, missing=True))
async def show_job(request: Request, job: JobInPath) -> Response:
    """Show how far a job is."""
    return document_response(request, await service_of(request).desk.job(job, client_in(request)))


@operation(router, HttpOperation("DELETE", "/v1/jobs/{job}", "Cancel a job", PlannerJob, missing=True))
async def cancel(request: Request, job: JobInPath) -> Response:
    """End a job that has not ended yet; one that has stays as it is."""
    return document_response(request, await service_of(request).desk.cancel(job, client_in(request)))


@operation(
    router,
    HttpOperation("GET", "/v1/jobs/{job}/result", "Show a job's result", JobResult, missing=True, early=True),
)
async def result(request: Request, job: JobInPath) -> Response:
    """Give the document that a job has made, of a study also its rows as Parquet."""
    files = await service_of(request).desk.results(job, client_in(request))
    media = _chosen(request.headers.get("accept", ""), files)
    path = files[media]
    headers = {"ETag": f'"{path.name}"', "Cache-Control": "no-cache", "Vary": "Accept"}
    if has_tag(request, path.name):
        return Response(status_code=304, headers=headers)
    headers["Content-Length"] = str(path.stat().st_size)
    return StreamingResponse(_pieces(path), headers=headers, media_type=media)


@operation(router, HttpOperation("GET", "/v1/jobs/{job}/events", "Follow a job", None, missing=True, events=True))
async def events(request: Request, job: JobInPath) -> Response:
    """Follow a job by server-sent events: `state` and `progress`, each with the job as data."""
    service, client = service_of(request), client_in(request)
    live = await service.desk.live(job, client)
    stream = _events(service, live, request.headers.get("last-event-id", ""))
    return _EventResponse(service, client, stream)


class _EventResponse(StreamingResponse):
    """A stream of events, one of as many as a client may have from the moment it begins, whenever it ends."""

    def __init__(self, service: PlannerService, client: str, stream: AsyncIterator[bytes]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(stream, headers=headers, media_type="text/event-stream")
        self._service, self._client = service, client

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it. Raises RefusedError (429) before anything is sent where the client has too many."""
        with self._service.streaming(self._client):
            await super().__call__(scope, receive, send)


def _chosen(accepted: str, files: dict[str, FilePath]) -> str:
    """Return the media type of a result that a client takes: JSON unless it names another. Raises RefusedError."""
    named = [part.partition(";")[0].strip().lower() for part in accepted.split(",") if part.strip()]
    for media in named:
        if media in files:
            return media
        if media in ("*/*", "application/*"):
            return JSON
    if named:
        raise RefusedError(406, "not_acceptable", f"the result is there as {', '.join(files)}")
    return JSON


async def _pieces(path: FilePath) -> AsyncIterator[bytes]:
    stream = await asyncio.to_thread(path.open, "rb")
    try:
        while piece := await asyncio.to_thread(stream.read, _PIECE):
            yield piece
    finally:
        stream.close()


async def _events(service: PlannerService, live: LiveJob, last: str) -> AsyncIterator[bytes]:
    """Yield the events of a job until it ends, or the service does. `last`: the name of the one that the client has."""
    told = "" if last != live.event_id else live.row.state
    seen = -1 if last != live.event_id else live.revision
    while not service.stopping.is_set():
        if seen != live.revision:
            seen, document = live.revision, live.document()
            name = "progress" if document.state == told else "state"
            told = document.state
            data = document.to_json(indent=None)
            yield f"id: {live.event_id}\nevent: {name}\ndata: {data}\n\n".encode()
        if live.row.state in ENDED:
            return
        if not await _happened(service, live, seen):
            yield b": still there\n\n"


async def _happened(service: PlannerService, live: LiveJob, seen: int) -> bool:
    """Wait for a change; returns whether there was one, or the service ends."""
    change = asyncio.ensure_future(live.changed(seen))
    stop = asyncio.ensure_future(service.stopping.wait())
    try:
        done, _ = await asyncio.wait({change, stop}, timeout=_BEAT_S, return_when=asyncio.FIRST_COMPLETED)
        if done and live.row.state not in ENDED:
            await asyncio.sleep(_APART_S)
        return bool(done)
    finally:
        change.cancel()
        stop.cancel()
