"""The paths of the service, and what each answers."""

import json
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar
from uuid import uuid4

from aiohttp import web

from helmsman.service.http.refusals import RefusedError
from helmsman.service.inference.access import access_middleware, page_signal
from helmsman.service.inference.answers import RequestAnswer
from helmsman.service.inference.connections import Connections
from helmsman.service.inference.event_stream import stream
from helmsman.service.inference.jobs import TextJob, chat, completion
from helmsman.service.inference.openai_requests import ChatRequest, CompletionRequest, GenerationRequest
from helmsman.service.inference.refusals import error_body, refusal_body
from helmsman.service.inference.replies import Piece
from helmsman.service.inference.running_request import RunningRequest
from helmsman.service.inference.service import Service

_RequestT = TypeVar("_RequestT", bound=GenerationRequest)
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def application(service: Service, connections: Connections) -> web.Application:
    """Return the service as an aiohttp application."""
    routes = Routes(service)
    access = service.options.access
    app = web.Application(middlewares=[_refusals(service), access_middleware(access), connections.middleware])
    app.on_response_prepare.append(page_signal(access))
    app.router.add_post("/v1/completions", routes.completions)
    app.router.add_post("/v1/chat/completions", routes.chat_completions)
    app.router.add_get("/v1/models", routes.models)
    app.router.add_get("/health", routes.health)
    app.router.add_get("/metrics", routes.metrics)
    return app


class Routes:
    """Handlers over one service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._created = int(time.time())

    async def completions(self, request: web.Request) -> web.StreamResponse:
        """`POST /v1/completions`."""
        generation = await self._read(CompletionRequest, request)
        wanted = await completion(generation, self._service.served, self._service.engine.capacity, self._service.helper)
        return await self._answer(request, generation, wanted, "cmpl")

    async def chat_completions(self, request: web.Request) -> web.StreamResponse:
        """`POST /v1/chat/completions`."""
        generation = await self._read(ChatRequest, request)
        wanted = await chat(generation, self._service.served, self._service.engine.capacity, self._service.helper)
        return await self._answer(request, generation, wanted, "chatcmpl")

    async def models(self, request: web.Request) -> web.Response:
        """`GET /v1/models`: the one that is served."""
        most = self._service.engine.capacity
        model = {"id": self._service.served.name, "object": "model", "created": self._created, "owned_by": "helm"}
        limits = {"max_model_len": min(most.context, most.home_tokens)}
        return web.json_response({"object": "list", "data": [model | limits | dict(self._service.served.about)]})

    async def health(self, request: web.Request) -> web.Response:
        """`GET /health`: 200 while requests are served, 503 otherwise."""
        health = self._service.health
        status = 200 if health.state == "ok" else 503
        return web.json_response({"status": health.state, "problem": health.problem}, status=status)

    async def metrics(self, request: web.Request) -> web.Response:
        """`GET /metrics`: Prometheus' text format."""
        kind = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        return web.Response(body=self._service.metrics.text(), headers=kind)

    async def _read(self, cls: type[_RequestT], request: web.Request) -> _RequestT:
        """Return the request, unless it need not be read to be refused."""
        self._service.health.check()
        self._service.admission.check()
        generation = await self._service.bodies.read(cls, request)
        name = self._service.served.name
        if generation.model is not None and generation.model != name:
            message = f"this server has {name!r}, not {generation.model[:80]!r}"
            raise RefusedError(404, "model_not_found", message, param="model")
        return generation

    async def _answer(
        self, request: web.Request, generation: GenerationRequest, wanted: TextJob, kind: str
    ) -> web.StreamResponse:
        conversation = kind == "chatcmpl"
        name = f"{kind}-{uuid4().hex}"
        answer = RequestAnswer(generation, name, int(time.time()), self._service.served.name, conversation)
        operation = "chat" if conversation else "text_completion"
        with self._service.running(wanted, operation) as run:
            if generation.stream:
                return await stream(request, answer, run, self._service.options.stall_s)
            piece = await _whole(run)
            body = answer.whole(piece, wanted.job.prompt, run.usage)
        return web.Response(body=body, content_type="application/json")


async def _whole(run: RunningRequest) -> Piece:
    """Return all pieces as one."""
    pieces = [piece async for piece in run.pieces()]
    text = "".join(piece.text for piece in pieces)
    return Piece(text, tuple(token for piece in pieces for token in piece.tokens), pieces[-1].finish)


def _refusals(service: Service) -> Any:
    """Return the middleware that makes every refusal an answer in OpenAI's shape, and counts those of requests."""

    @web.middleware
    async def refuse(request: web.Request, handler: _Handler) -> web.StreamResponse:
        try:
            return await _bounded(request, handler)
        except RefusedError as problem:
            service.metrics.rejected(problem.reason)
            return _json(refusal_body(problem), problem.status, problem.headers)
        except web.HTTPException as problem:
            return _json(error_body(problem.status, problem.reason, "http"), problem.status, _allowed(problem))

    return refuse


async def _bounded(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Answer a request; what it asks for beyond what this process has is its own error, not the server's."""
    try:
        return await handler(request)
    except MemoryError:
        raise RefusedError(503, "memory", "no memory is left for this request; come again", retry_s=5) from None
    except RecursionError:
        raise RefusedError(400, "invalid_request", "nested too deeply") from None


def _allowed(problem: web.HTTPException) -> dict[str, str]:
    return {"Allow": problem.headers["Allow"]} if "Allow" in problem.headers else {}


def _json(body: dict[str, Any], status: int, headers: Mapping[str, str]) -> web.Response:
    return web.Response(body=json.dumps(body).encode(), status=status, headers=headers, content_type="application/json")
