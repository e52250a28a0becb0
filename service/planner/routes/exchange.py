"""Reads bodies of requests and writes documents as responses, for all handlers."""

import hashlib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from fastapi import Request, Response
from starlette.requests import ClientDisconnect

from helmsman.schemas.base import Document
from helmsman.schemas.errors import HelmError
from helmsman.schemas.job import PlannerJob
from helmsman.service.http.bodies import ArrivingBody
from helmsman.service.planner.computing.answer import JSON, PROBLEM, WorkerAnswer
from helmsman.service.planner.problems import problem_of
from helmsman.service.planner.service import GoneError, PlannerService

_RETRY_S = 1
"""Seconds after which a job is worth a look."""


def service_of(request: Request) -> PlannerService:
    """Return the service that a request is to."""
    service = request.app.state.service
    assert isinstance(service, PlannerService), "given to the application"
    return service


def client_in(request: Request) -> str:
    """Return who asks, as the gateway has it."""
    return str(request.scope["state"]["client"])


@asynccontextmanager
async def body_of(request: Request) -> AsyncIterator[bytes]:
    """Give the body of a request, within its limits. Raises RefusedError, GoneError."""
    length = request.headers.get("content-length", "")
    encoding = request.headers.get("content-encoding", "identity")
    size = int(length) if length.isascii() and length.isdecimal() and len(length) < 20 else None
    arriving = ArrivingBody(request.stream(), request.client.host if request.client else "", size, encoding)
    try:
        async with service_of(request).bodies.read(arriving) as body:
            yield body
    except ClientDisconnect:
        raise GoneError from None


async def left(request: Request) -> None:
    """Return once the client has left; its body is read by now."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def document_response(request: Request, document: Document, headers: Mapping[str, str] | None = None) -> Response:
    """Return a document with its ETag, or 304 where the client has it."""
    content = document.to_json(indent=None).encode()
    return tagged(request, content, hashlib.sha256(content).hexdigest(), headers=headers)


def tagged(
    request: Request,
    content: bytes,
    tag: str,
    status: int = 200,
    media: str = JSON,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Return a response whose content is known by a tag, or 304 where the client has it."""
    said = {"ETag": f'"{tag}"', "Cache-Control": "no-cache", **(headers or {})}
    if has_tag(request, tag):
        return Response(status_code=304, headers=said)
    return Response(content, status, said, media)


def has_tag(request: Request, tag: str) -> bool:
    """Return whether a client has the content that is known by a tag; any content is what it means by `*`, unless the
    content depends on what it sends."""
    named = request.headers.get("if-none-match", "")
    if named.strip() == "*":
        return request.method in ("GET", "HEAD")
    return any(part.strip().removeprefix("W/") == f'"{tag}"' for part in named.split(","))


def job_response(job: PlannerJob) -> Response:
    """Return that a question has become a job."""
    headers = {"Location": job.links.self, "Retry-After": str(_RETRY_S), "Cache-Control": "no-store"}
    return Response(job.to_json(indent=None).encode(), 202, headers, JSON)


def answer_response(request: Request, answer: WorkerAnswer, key: str) -> Response:
    """Return an answer, or 304 where the client has it; or a problem, which nobody has by a tag."""
    if answer.status >= 400:
        headers = {"Retry-After": str(_RETRY_S)} if answer.status >= 500 else {"Cache-Control": "no-cache"}
        return Response(answer.content, answer.status, headers, PROBLEM)
    return tagged(request, answer.content, key, answer.status, answer.media)


def error_response(error: HelmError, path: str, status: int | None = None) -> Response:
    """Return an error of the library as a problem; `status`: if it is not the usual one."""
    problem = problem_of(error)
    problem = problem.model_copy(update={"instance": path[:500], "status": status or problem.status})
    return Response(problem.to_json().encode(), problem.status, media_type=PROBLEM)
