"""Whether the service lives, whether it should be asked, and how much it does."""

from fastapi import APIRouter, Request, Response

from helmsman.schemas.service_health import ServiceHealth
from helmsman.service.planner.computing.answer import JSON
from helmsman.service.planner.routes.exchange import service_of
from helmsman.service.planner.routes.operations import HttpOperation, operation

router = APIRouter()


@operation(router, HttpOperation("GET", "/health", "Health", ServiceHealth, plain=True))
async def health(request: Request) -> Response:
    """Say that the service answers."""
    return _told(service_of(request).health(), 200)


@operation(router, HttpOperation("GET", "/ready", "Readiness", ServiceHealth, plain=True, unready=True))
async def ready(request: Request) -> Response:
    """Say whether the service should be asked: 503 where not."""
    state = service_of(request).health()
    return _told(state, 200 if state.status == "ok" else 503)


@operation(router, HttpOperation("GET", "/metrics", "Metrics", None, plain=True, metrics=True))
async def metrics(request: Request) -> Response:
    """Give Prometheus' text format."""
    return Response(service_of(request).metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


def _told(state: ServiceHealth, status: int) -> Response:
    return Response(state.to_json(indent=None).encode(), status, {"Cache-Control": "no-store"}, JSON)
