"""Models, machines and strategies: their names, their documents, and documents of what clients have."""

import asyncio
from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request, Response

from helmsman.schemas.errors import UsageError
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.job import PlannerJob
from helmsman.schemas.listing import Listing
from helmsman.schemas.model import Model
from helmsman.service.planner.routes.examples import MACHINE, MODEL, STRATEGIES
from helmsman.service.planner.routes.exchange import (
    answer_response,
    body_of,
    client_in,
    document_response,
    error_response,
    left,
    service_of,
)
from helmsman.service.planner.routes.operations import HttpOperation, MachineBody, ModelBody, operation
from helmsman.service.planner.service import ClientQuestion

router = APIRouter()

Text = Annotated[str, Query(max_length=200, description="a part of a name, or of what is said about it")]
NameInPath = Annotated[str, Path(min_length=1, max_length=200)]


@operation(router, HttpOperation("GET", "/v1/models", "List models", Listing, lists="/v1/models/{name}"))
async def models(request: Request, q: Text = "") -> Response:
    """List the models that are known by name."""
    return document_response(request, await asyncio.to_thread(service_of(request).catalogue.listing, "models", q))


@operation(router, HttpOperation("GET", "/v1/models/{name:path}", "Show a model", Model, missing=True))
async def model(request: Request, name: NameInPath) -> Response:
    """Show the document of a model."""
    try:
        return document_response(request, service_of(request).catalogue.model(name))
    except UsageError as error:
        return error_response(error, request.url.path, 404)


@operation(router, HttpOperation("POST", "/v1/models", "Read a model", Model, body=ModelBody, examples=MODEL))
async def read_model(request: Request) -> Response:
    """Make a Model of a Hugging Face `config.json`, or check a Model document."""
    return await _read(request, "model")


@operation(
    router, HttpOperation("GET", "/v1/hardware", "List machines and parts", Listing, lists="/v1/hardware/{name}")
)
async def machines(request: Request, q: Text = "", kind: Literal["machines", "gpus", "cpus"] = "machines") -> Response:
    """List the machines, or the GPUs or CPUs, that are known by name."""
    return document_response(request, await asyncio.to_thread(service_of(request).catalogue.listing, kind, q))


@operation(router, HttpOperation("GET", "/v1/hardware/{name}", "Show a machine", Hardware, missing=True))
async def machine(request: Request, name: NameInPath) -> Response:
    """Show the record of a machine."""
    try:
        return document_response(request, service_of(request).catalogue.machine(name))
    except UsageError as error:
        return error_response(error, request.url.path, 404)


@operation(
    router, HttpOperation("POST", "/v1/hardware", "Make a machine", Hardware, body=MachineBody, examples=MACHINE)
)
async def read_machine(request: Request) -> Response:
    """Make the record of a machine of parts, or of one with something changed."""
    return await _read(request, "machine")


@operation(router, HttpOperation("GET", "/v1/strategies", "List strategies", Listing, shown=STRATEGIES))
async def strategies(request: Request, q: Text = "") -> Response:
    """List the strategies of planning by name, the one that chooses among others' plans first."""
    return document_response(request, await asyncio.to_thread(service_of(request).catalogue.listing, "strategies", q))


@operation(router, HttpOperation("GET", "/v1/engines", "List engines", Listing))
async def engines(request: Request, q: Text = "") -> Response:
    """List the engines whose speed can be predicted, by the names that questions take: our own first."""
    return document_response(request, await asyncio.to_thread(service_of(request).catalogue.listing, "engines", q))


async def _read(request: Request, kind: str) -> Response:
    service = service_of(request)
    async with body_of(request) as body:
        question = ClientQuestion(kind, service.keys.key(kind, body), body, client_in(request), 0)
    answer = await service.answer(question, partial(left, request))
    assert not isinstance(answer, PlannerJob), "short"
    return answer_response(request, answer, question.key)
