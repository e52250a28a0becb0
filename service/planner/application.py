"""The service as an ASGI application: its paths, its errors as problems, its description."""

from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import JsonSchemaMode, models_json_schema
from starlette.exceptions import HTTPException

from helmsman import __version__
from helmsman.schemas.comparison_question import ComparisonQuestion
from helmsman.schemas.errors import HelmError, UsageError
from helmsman.schemas.planner_question import PlannerQuestion
from helmsman.schemas.simulation_question import SimulationQuestion
from helmsman.schemas.study import Study
from helmsman.service.http.refusals import RefusedError
from helmsman.service.planner.computing.answer import PROBLEM
from helmsman.service.planner.gateway import Gateway
from helmsman.service.planner.problems import internal_problem, refusal_problem
from helmsman.service.planner.routes import answers, catalogue, description, health, jobs, page
from helmsman.service.planner.routes.exchange import error_response, service_of
from helmsman.service.planner.routes.operations import REFERENCED
from helmsman.service.planner.service import GoneError, PlannerService

_ABOUT = "Where the weights, caches and work of a language model go on a machine, and how fast that is."
_BODIES = (PlannerQuestion, ComparisonQuestion, SimulationQuestion, Study, *REFERENCED)
_MODE: JsonSchemaMode = "validation"
_SCHEMA = "#/components/schemas/{model}"


class _PlannerApplication(FastAPI):
    """The paths, and what describes them: with the documents of requests, which handlers read themselves."""

    def openapi(self) -> dict[str, Any]:
        """Return the description, made once."""
        if self.openapi_schema is None:
            described = get_openapi(
                title=self.title,
                version=self.version,
                openapi_version="3.1.0",
                description=_ABOUT,
                routes=self.routes,
                separate_input_output_schemas=False,
            )
            bodies = [(kind, _MODE) for kind in _BODIES]
            _, definitions = models_json_schema(bodies, by_alias=True, ref_template=_SCHEMA)
            schemas = described.setdefault("components", {}).setdefault("schemas", {})
            for name, schema in definitions["$defs"].items():
                schemas.setdefault(name, schema)
            self.openapi_schema = described
        return self.openapi_schema


def application(service: PlannerService) -> Gateway:
    """Return the application that answers for a service."""
    app = _PlannerApplication(
        title="Helm", version=__version__, docs_url=None, redoc_url=None, openapi_url=None, redirect_slashes=False
    )
    told = description.Description(app.openapi)
    app.state.service, app.state.description = service, told
    for room in (answers, catalogue, jobs, health, page, description):
        app.include_router(room.router)
    app.add_exception_handler(HelmError, _helm_error)
    app.add_exception_handler(RequestValidationError, _wrong_parameter)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RefusedError, _refused)
    app.add_exception_handler(GoneError, _gone)
    app.add_exception_handler(Exception, _mistake)
    return Gateway(app, service, told)


async def _helm_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HelmError), "registered for these"
    return error_response(error, request.url.path)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError), "registered for these"
    service_of(request).metrics.refused(error.reason)
    problem = refusal_problem(error).model_copy(update={"instance": request.url.path[:500]})
    return Response(problem.to_json().encode(), error.status, dict(error.headers), PROBLEM)


async def _gone(request: Request, error: Exception) -> Response:
    """Nobody reads this: the status is for the log."""
    return Response(status_code=499)


async def _mistake(request: Request, error: Exception) -> Response:
    problem = internal_problem(error)
    return Response(problem.to_json().encode(), problem.status, media_type=PROBLEM)


async def _wrong_parameter(request: Request, error: Exception) -> Response:
    """Return the response about a parameter of the query that is wrong, or one of the path, which names nothing."""
    assert isinstance(error, RequestValidationError), "registered for these"
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"][1:])
    if first["loc"][0] == "path":
        return await _refused(request, RefusedError(404, "not_found", f"there is no such {field}", param=field))
    return error_response(UsageError(first["msg"], field=field, value=first.get("input")), request.url.path)


async def _http_error(request: Request, error: Exception) -> Response:
    """A path that there is not, or a method that it has not."""
    assert isinstance(error, HTTPException), "registered for these"
    code = {404: "not_found", 405: "method"}.get(error.status_code, "http")
    refusal = RefusedError(error.status_code, code, str(error.detail))
    problem = refusal_problem(refusal).model_copy(update={"instance": request.url.path[:500]})
    headers = dict(error.headers or {})
    return Response(problem.to_json().encode(), error.status_code, headers, PROBLEM)
