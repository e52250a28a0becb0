"""Questions that are answered at once, or become jobs where that takes long: plans and comparisons; simulations and
studies, which are jobs from the beginning."""

from functools import partial
from typing import TypeVar

from fastapi import APIRouter, Request, Response

from helmsman.planner.registry import OWN
from helmsman.schemas.base import Document
from helmsman.schemas.comparison import Comparison
from helmsman.schemas.comparison_question import ComparisonQuestion
from helmsman.schemas.job import JobKind, PlannerJob
from helmsman.schemas.plan_answer import PlanAnswer
from helmsman.schemas.planner_question import PlannerQuestion
from helmsman.schemas.read import parse_document
from helmsman.schemas.simulation_question import SimulationQuestion
from helmsman.schemas.study import Study
from helmsman.service.planner.routes.examples import COMPARISON, PLAN, SIMULATION, STUDY
from helmsman.service.planner.routes.exchange import (
    answer_response,
    body_of,
    client_in,
    job_response,
    left,
    service_of,
)
from helmsman.service.planner.routes.operations import HttpOperation, operation
from helmsman.service.planner.service import ClientQuestion

DocumentT = TypeVar("DocumentT", bound=Document)

_AT_ONCE = 2**15
"""Bytes of a question that is parsed in the event loop: in a millisecond or two. Larger ones are parsed by workers."""

router = APIRouter()


@operation(
    router, HttpOperation("POST", "/v1/plans", "Plan", PlanAnswer, job=True, body=PlannerQuestion, examples=PLAN)
)
async def plans(request: Request) -> Response:
    """Say where weights, caches and work go, and how fast that is.

    200 with the answer, or 202 with a job where it takes more than a second."""
    async with body_of(request) as body:
        canonical, _ = _canonical(PlannerQuestion, body)
    return await _answered(request, "plan", canonical, 1)


@operation(
    router,
    HttpOperation(
        "POST", "/v1/comparisons", "Compare", Comparison, job=True, body=ComparisonQuestion, examples=COMPARISON
    ),
)
async def comparisons(request: Request) -> Response:
    """Ask several strategies one question; 200, or 202 with a job."""
    async with body_of(request) as body:
        canonical, comparison = _canonical(ComparisonQuestion, body)
    strategies = OWN if comparison is None or comparison.strategies is None else comparison.strategies
    return await _answered(request, "comparison", canonical, len(strategies))


@operation(
    router,
    HttpOperation("POST", "/v1/simulations", "Simulate", None, job=True, body=SimulationQuestion, examples=SIMULATION),
)
async def simulations(request: Request) -> Response:
    """Replay a plan, or serve requests with it, in virtual time: a job."""
    return await _submitted(request, "simulation")


@operation(router, HttpOperation("POST", "/v1/studies", "Study", None, job=True, body=Study, examples=STUDY))
async def studies(request: Request) -> Response:
    """Ask a grid of questions: a job, whose result is a report, or a Parquet file of all rows."""
    return await _submitted(request, "study")


def _canonical(kind: type[DocumentT], body: bytes) -> tuple[bytes, DocumentT | None]:
    """Return a question as it is known by, and read where it is short. Raises BadInputError."""
    if len(body) > _AT_ONCE:
        return body, None
    question = parse_document(kind, body, "question")
    return question.to_json(indent=None).encode(), question


async def _answered(request: Request, kind: str, content: bytes, points: int) -> Response:
    service = service_of(request)
    question = ClientQuestion(kind, service.keys.key(kind, content), content, client_in(request), points)
    answer = await service.answer(question, partial(left, request))
    return job_response(answer) if isinstance(answer, PlannerJob) else answer_response(request, answer, question.key)


async def _submitted(request: Request, kind: JobKind) -> Response:
    service, check = service_of(request), f"check-{kind}"
    async with body_of(request) as body:
        question = ClientQuestion(check, service.keys.key(check, body), body, client_in(request), 0)
    answer = await service.submit(kind, question, partial(left, request))
    return job_response(answer) if isinstance(answer, PlannerJob) else answer_response(request, answer, question.key)
