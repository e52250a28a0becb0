"""Operations as OpenAPI describes them: every status and type of content that an answer may have."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import APIRouter, Response
from pydantic import ConfigDict, Field, RootModel

from helmsman.schemas.base import Document
from helmsman.schemas.comparison import Comparison
from helmsman.schemas.job import PlannerJob
from helmsman.schemas.model import Model
from helmsman.schemas.plan_answer import PlanAnswer
from helmsman.schemas.planner_question import MachineChoice
from helmsman.schemas.problem import Problem
from helmsman.schemas.simulation_answer import SimulationAnswer
from helmsman.schemas.study_report import StudyReport
from helmsman.service.planner.computing.answer import JSON, PARQUET, PROBLEM

Handler = Callable[..., Awaitable[Response]]

_ALWAYS = {
    400: "The request, or a document in it, cannot be read.",
    401: "A key is needed.",
    403: "The service is not called so, or the page may not ask.",
    422: "The question makes no sense, nothing fits, or its computation takes too much.",
    429: "The client asks too much at once.",
    500: "The service has a mistake.",
    503: "Not now: the service is starting or stopping, or a computation was ended.",
    507: "The service has no room for jobs.",
}
_WITH_BODY = {408: "The body came too slowly.", 413: "The body is too large.", 415: "The body is not plain JSON."}
_TAG = {"description": "what the answer is known by", "schema": {"type": "string"}}
_LATER = {"description": "seconds after which to ask again", "schema": {"type": "integer"}}


class ModelBody(RootModel[Annotated[dict[str, Any], Field(description="a config.json, or a Model document")]]):
    """Content from which a Model is read."""

    model_config = ConfigDict(defer_build=True)


class MachineBody(RootModel[MachineChoice]):
    """A machine as questions give it."""

    model_config = ConfigDict(defer_build=True)


class JobResult(RootModel[PlanAnswer | Comparison | SimulationAnswer | StudyReport]):
    """The result of a job, by its kind."""

    model_config = ConfigDict(defer_build=True)


@dataclass(frozen=True, slots=True)
class HttpOperation:
    """Describes a method of a path for OpenAPI. `answer`: the document of status 200, with examples that are `shown` by
    name; `body`: that of the request, with `examples` by name; `job`: it may become a job; `missing`: what it names may
    not be there; `lists`: the path of an operation that shows one of the names it lists; `early`: it may be asked too
    early; `plain`: a monitor's; `unready`, `events`, `metrics`: what it answers is not only a document."""

    method: str
    path: str
    title: str
    answer: type[Document] | type[RootModel[Any]] | None
    body: type[Document] | type[RootModel[Any]] | None = None
    examples: Mapping[str, Any] = field(default_factory=dict)
    shown: Mapping[str, Any] = field(default_factory=dict)
    job: bool = False
    missing: bool = False
    lists: str | None = None
    early: bool = False
    plain: bool = False
    unready: bool = False
    events: bool = False
    metrics: bool = False


def operation(router: APIRouter, of: HttpOperation) -> Callable[[Handler], Handler]:
    """Return the decorator that lets a handler answer an operation."""
    body = {} if of.body is None else {"requestBody": _request_body(of.body, of.examples)}
    return router.api_route(
        of.path,
        methods=[of.method],
        summary=of.title,
        response_class=Response,
        responses=_responses(of),
        openapi_extra=body,
        status_code=202 if of.job and of.answer is None else 200,
    )


def _request_body(kind: type[Document] | type[RootModel[Any]], examples: Mapping[str, Any]) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{kind.__name__}"}
    return {"required": True, "content": {JSON: {"schema": schema, "examples": _by_value(examples)}}}


def _by_value(examples: Mapping[str, Any]) -> dict[str, Any]:
    """Return examples as OpenAPI has them."""
    return {name: {"value": value} for name, value in examples.items()}


def _responses(of: HttpOperation) -> dict[int | str, dict[str, Any]]:
    responses: dict[int | str, dict[str, Any]] = {}
    if of.answer is not None:
        responses[200] = {"model": of.answer, "description": of.title, "headers": {"ETag": _TAG}}
        responses[304] = {"description": "The client has the answer.", "headers": {"ETag": _TAG}}
    if of.lists is not None:
        first = {"operationRef": _reference(of.lists, "get"), "parameters": {"name": "$response.body#/entries/0/name"}}
        responses[200]["links"] = {"first": first}
    if of.shown:
        responses[200]["content"] = {JSON: {"examples": _by_value(of.shown)}}
    if of.early:
        responses[200]["content"] = {PARQUET: {"schema": {"type": "string", "format": "binary"}}}
    if of.events:
        responses[200] = {"description": of.title, "content": {"text/event-stream": {"schema": _EVENT}}}
    if of.metrics:
        responses[200] = {"description": of.title, "content": {"text/plain": {"schema": {"type": "string"}}}}
    if of.job:
        location = {"description": "the job", "schema": {"type": "string"}}
        headers = {"Location": location, "Retry-After": _LATER}
        responses[202] = {"model": PlannerJob, "description": "It has become a job.", "headers": headers}
        responses[202]["links"] = _OF_JOB
    refusals = {
        **({status: _ALWAYS[status] for status in (401, 403, 500)} if of.plain else _ALWAYS),
        **(_WITH_BODY if of.body is not None else {}),
        **({404: "There is no such thing."} if of.missing else {}),
        **({406: "It is not there in this form.", 409: "The job failed, or was cancelled."} if of.early else {}),
    }
    for status, text in refusals.items():
        headers = {"headers": {"Retry-After": _LATER}} if status in (429, 503) else {}
        responses[status] = {"description": text, "content": {PROBLEM: {"schema": _PROBLEM}}, **headers}
    if of.unready:
        responses[503] = {"model": of.answer, "description": "It should not be asked now."}
    return dict(sorted(responses.items(), key=lambda pair: str(pair[0])))


def _reference(path: str, method: str) -> str:
    """Return where the description has an operation, as a JSON pointer (RFC 6901)."""
    return f"#/paths/{path.replace('~', '~0').replace('/', '~1')}/{method}"


_JOB = "/v1/jobs/{job}"
_OF_JOB = {
    name: {"operationRef": _reference(path, method), "parameters": {"job": "$response.body#/id"}}
    for name, path, method in (
        ("state", _JOB, "get"),
        ("result", f"{_JOB}/result", "get"),
        ("events", f"{_JOB}/events", "get"),
        ("cancel", _JOB, "delete"),
    )
}
"""Links of an answer that has become a job to what can be asked of it."""

_PROBLEM = {"$ref": f"#/components/schemas/{Problem.__name__}"}

_EVENT = {
    "type": "object",
    "properties": {
        "event": {"enum": ["state", "progress"]},
        "id": {"type": "string"},
        "data": {"type": "string", "description": "a helm.job/1"},
    },
}

REFERENCED: tuple[type[Document] | type[RootModel[Any]], ...] = (Problem, Model, ModelBody, MachineBody)
"""Documents that descriptions refer to by name, beside those of requests."""
