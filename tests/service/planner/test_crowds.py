"""A crowd of questions: who asks for long, leaves, or asks for all that there is, keeps nobody else waiting."""

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from web_service import OPTIONS, QUESTION, WebSite, until, web_site

from helmsman.service.planner import service
from helmsman.service.planner.computing.pool import LaneSeat
from helmsman.service.planner.jobs.database import DamagedStoreError
from helmsman.service.planner.options import ClientLimits

MACHINE = {"cpu": "AMD Ryzen 9 5950X", "ram": 64000000000}
STUDY = {"models": ["Qwen3-0.6B"], "machines": ["rtx4060-laptop"], "strategies": ["layer-split"],
         "formats": ["f16", "q8_0"], "sensitivity": 0}  # fmt: skip
CROWDED = replace(OPTIONS, patience_s=0.02, queue_s=0.2, waiting=8, questions=4000)


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebSite]:
    with web_site(Path(tmp_path_factory.mktemp("crowded")), CROWDED) as running:
        yield running


@contextmanager
def full(site: WebSite) -> Iterator[None]:
    """While this lasts, others have every quick place."""
    release = asyncio.Event()

    async def sit() -> None:
        async with site.service.pool.taken(LaneSeat("other", "quick", site.loop.create_future())):
            await release.wait()

    sitting = asyncio.run_coroutine_threadsafe(sit(), site.loop)
    until(lambda: site.service.pool.busy("quick") == 1)
    try:
        yield
    finally:
        site.loop.call_soon_threadsafe(release.set)
        sitting.result(30)


@contextmanager
def waiting(site: WebSite, *machines: dict[str, Any]) -> Iterator[None]:
    """While this lasts, clients wait for machines to be made; then they leave."""
    sockets = []
    for machine in machines:
        body = json.dumps(machine).encode()
        head = f"POST /v1/hardware HTTP/1.1\r\nHost: a.localhost\r\nContent-Length: {len(body)}\r\n"
        sockets.append(socket.create_connection(("127.0.0.1", site.port), timeout=30))
        sockets[-1].sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
        until(lambda: site.service.pool.waiting("quick") == len(sockets))
    try:
        yield
    finally:
        for connection in sockets:
            connection.close()


def test_who_finds_no_process_is_told_to_come_again(crowded: WebSite) -> None:
    with full(crowded):
        reply = crowded.post("/v1/hardware", {**MACHINE, "ram": 8 * 10**9})
    assert (reply.status, reply.document["code"], reply.headers["retry-after"]) == (503, "busy", "5")
    assert crowded.post("/v1/hardware", {**MACHINE, "ram": 8 * 10**9}).status == 200


def test_who_leaves_keeps_no_place_in_the_queue(tmp_path: Path) -> None:
    with web_site(tmp_path, replace(CROWDED, queue_s=60.0)) as site, full(site):
        with waiting(site, {**MACHINE, "ram": 2 * 8 * 10**9}):
            time.sleep(3 * CROWDED.patience_s)
            assert site.service.bodies.held > 0, "what waits counts"
        until(lambda: site.service.pool.waiting("quick") == 0 and site.service.computations.under_way == 0)
        assert site.service.bodies.held == 0


def test_one_client_has_a_part_of_the_queue(tmp_path: Path) -> None:
    with (
        web_site(tmp_path, replace(CROWDED, queue_s=60.0)) as site,
        full(site),
        waiting(site, {**MACHINE, "ram": 3 * 8 * 10**9}, {**MACHINE, "ram": 4 * 10**9}),
    ):
        reply = site.post("/v1/hardware", {**MACHINE, "ram": 5 * 8 * 10**9})
        assert (reply.status, reply.document["code"]) == (429, "busy")


def test_questions_that_wait_have_so_many_bytes(crowded: WebSite) -> None:
    reply = crowded.post("/v1/hardware", json.dumps(MACHINE).encode() + b" " * 1000)
    assert (reply.status, reply.document["code"]) == (429, "bodies")


def test_a_short_question_has_a_deadline_of_its_own(tmp_path: Path) -> None:
    with web_site(tmp_path, replace(OPTIONS, short_s=0.0)) as site:
        reply = site.post("/v1/hardware", MACHINE)
        assert (reply.status, reply.document["code"]) == (422, "too-long") and "0 s" in reply.document["detail"]
        assert site.post("/v1/plans", QUESTION).status == 200, "a job may take longer"


def test_a_study_that_was_answered_costs_nothing(tmp_path: Path) -> None:
    with web_site(tmp_path, replace(OPTIONS, clients=ClientLimits(points=3))) as site:
        assert site.job("/v1/studies", STUDY)["state"] == "done"
        assert site.post("/v1/studies", STUDY).document["state"] == "done"
        assert site.post("/v1/studies", {**STUDY, "prompt_tokens": [99]}).status == 429, "another costs"


@pytest.mark.parametrize("error", [KeyError("ours"), DamagedStoreError("the store is damaged")])
def test_housekeeping_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(service, "_EXPIRY_S", 0.01)
    with web_site(tmp_path) as site:

        async def fails() -> None:
            raise error

        good = site.service.desk.expire
        monkeypatch.setattr(site.service.desk, "expire", fails)
        until(lambda: site.get("/ready").document["status"] == "damaged")
        monkeypatch.setattr(site.service.desk, "expire", good)
        until(lambda: site.get("/ready").document["status"] == "ok")
