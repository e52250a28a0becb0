"""Refusals: never known by a tag, and paid for by nobody where the service is the reason."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from web_service import OPTIONS, QUESTION, WebSite, web_site

from helmsman.schemas.planner_question import PlannerQuestion
from helmsman.schemas.read import parse_document
from helmsman.service.planner.computing.answer import WorkerAnswer
from helmsman.service.planner.computing.worker import WorkerEndedError
from helmsman.service.planner.options import ClientLimits
from helmsman.service.planner.problems import UnwritableStoreError

STUDY: dict[str, Any] = {"models": ["Qwen3-0.6B"], "machines": ["rtx4060-laptop"], "strategies": ["layer-split"],
                         "sensitivity": 0}  # fmt: skip
ONE = replace(OPTIONS, clients=ClientLimits(points=1))
"""A client has one point a day: who is charged for nothing has none left."""


def canonical(question: dict[str, Any]) -> bytes:
    return parse_document(PlannerQuestion, json.dumps(question).encode(), "question").to_json(indent=None).encode()


@pytest.mark.parametrize("times", [1, 2], ids=["made", "kept"])
def test_a_refusal_is_never_what_the_client_has(site: WebSite, times: int) -> None:
    """Though it is kept under a key that would be the tag of an answer."""
    large = {**QUESTION, "model": "Llama-3.1-70B"}
    tag = f'"{site.service.keys.key("plan", canonical(large))}"'
    for _ in range(times):
        reply = site.post("/v1/plans", large, If_None_Match=tag)
        assert reply.status == 422 and "etag" not in reply.headers


def test_the_check_of_a_job_has_no_tag(site: WebSite) -> None:
    for study, status in (({**STUDY, "models": ["none"]}, 422), (STUDY, 202)):
        body = json.dumps(study).encode()
        tags = [f'"{site.service.keys.key(kind, body)}"' for kind in ("check-study", "study")]
        for _ in range(2):
            reply = site.post("/v1/studies", body, If_None_Match=", ".join(tags))
            assert reply.status == status and "etag" not in reply.headers


def test_a_plan_that_was_not_made_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process was killed."""
    with web_site(tmp_path, ONE) as site:

        async def killed(*_: Any) -> WorkerAnswer:
            raise WorkerEndedError("the process that computed the answer ended")

        with monkeypatch.context() as patch:
            patch.setattr(site.service.pool, "run", killed)
            for _ in range(2):
                reply = site.post("/v1/plans", QUESTION)
                assert (reply.status, reply.document["code"]) == (503, "worker-ended")
        assert site.post("/v1/plans", QUESTION).status == 200
        assert site.post("/v1/plans", {**QUESTION, "batch": 2}).document["code"] == "points", "that one costs"


def test_a_plan_that_does_not_fit_costs(tmp_path: Path) -> None:
    with web_site(tmp_path, ONE) as site:
        assert site.post("/v1/plans", {**QUESTION, "model": "Llama-3.1-70B"}).status == 422
        assert site.post("/v1/plans", QUESTION).document["code"] == "points"


@pytest.mark.parametrize("path", ["/v1/plans", "/v1/simulations"])
def test_a_job_that_is_not_taken_in_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """The disk is full."""
    body = QUESTION if path == "/v1/plans" else {"question": QUESTION}
    with web_site(tmp_path, replace(ONE, patience_s=0.0)) as site:

        def full(*_: Any) -> int:
            raise UnwritableStoreError("no room")

        with monkeypatch.context() as patch:
            patch.setattr(site.service.desk._database, "_change", full)
            for _ in range(2):
                assert site.post(path, body).status == 507
        reply = site.post(path, body)
        assert reply.status == 202, reply
        site.ended(reply.headers["location"])
