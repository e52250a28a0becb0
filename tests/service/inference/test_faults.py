"""After a fault of a device nothing is served until a canary passes; a server that stops lets those that run finish."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import ClientConnectorError, ClientSession
from benchmarks.virtual_engine import VirtualEngine
from http_service import OPTIONS, Site, on_site, served

from helmsman.service.http.listening import address, listen
from helmsman.service.inference.server import serving

LONG = {"prompt": "a", "max_tokens": 4000, "ignore_eos": True}


def test_nothing_is_served_after_a_fault_until_a_canary_passes() -> None:
    async def test(site: Site) -> None:
        whole = asyncio.create_task(site.complete(**LONG))
        streamed = asyncio.create_task(site.events("/v1/completions", **LONG))
        await site.until(lambda: site.engine.load().running == 2)
        await asyncio.sleep(0.02)
        site.engine.break_down()
        status, body, _ = await whole
        assert status == 503 and body["error"]["code"] == "device_fault"
        assert (await streamed)[-1]["error"]["code"] == "device_fault"
        status, body, headers = await site.complete(prompt="a")
        assert status == 503 and "until a canary passes" in body["error"]["message"] and "Retry-After" in headers
        status, text = await site.get("/health")
        assert status == 503 and '"status": "faulted", "problem": "' in text
        await site.until(lambda: site.engine.checks >= 2)
        assert (await site.complete(prompt="a"))[0] == 503
        site.engine.repair()
        await site.until(lambda: site.service.health.state == "ok")
        assert (await site.complete(prompt="a"))[0] == 200 and (await site.get("/health"))[0] == 200
        metrics = (await site.get("/metrics"))[1]
        assert 'helm:device_faults_total{engine="0",model_name="tiny"} 1.0' in metrics
        assert 'finished_reason="error",model_name="tiny"} 2.0' in metrics

    on_site(test)


def test_a_fault_is_seen_without_requests() -> None:
    async def test(site: Site) -> None:
        site.engine.break_down()
        await site.until(lambda: site.engine.fault is not None)
        assert (await site.complete(prompt="a"))[0] == 503
        assert (await site.get("/health"))[0] == 503

    on_site(test)


def stopped(grace_s: float, output: int) -> tuple[int, Any, VirtualEngine]:
    """(status, answer) of a request that runs while the service is asked to stop."""

    async def run() -> tuple[int, Any]:
        listener = listen("127.0.0.1", 0)
        async with ClientSession() as client:
            async with serving(listener, engine, served(), replace(OPTIONS, grace_s=grace_s)) as service:
                found = Site(service, engine, address(listener), client)
                running = asyncio.create_task(found.complete(prompt="a", max_tokens=output, ignore_eos=True))
                await found.until(lambda: service.admission.requests == 1)
            with pytest.raises(ClientConnectorError):
                await found.get("/health")
            return (await running)[:2]

    engine = VirtualEngine(step_s=0.002)
    try:
        return *asyncio.run(run()), engine
    finally:
        engine.close()


def test_a_service_that_stops_lets_those_that_run_finish() -> None:
    status, body, _ = stopped(grace_s=60.0, output=40)
    assert status == 200 and body["usage"]["completion_tokens"] == 40


def test_its_grace_ends() -> None:
    status, body, engine = stopped(grace_s=0.05, output=4000)
    assert status == 503 and body["error"]["code"] == "stopping" and engine.cancelled == [0]


def test_a_request_without_room_is_refused_alone() -> None:
    async def test(site: Site) -> None:
        other = asyncio.create_task(site.complete(**LONG | {"max_tokens": 400}))
        await site.until(lambda: site.engine.load().running == 1)
        taken = site.engine.submit
        site.engine.submit = lambda job, on_token, on_end: (on_end("refused"), taken(job, on_token, lambda _: None))[1]
        status, body, headers = await site.complete(prompt="b")
        site.engine.submit = taken
        assert status == 503 and body["error"]["code"] == "memory" and "Retry-After" in headers
        assert (await site.get("/health"))[0] == 200 and site.service.health.state == "ok"
        assert (await other)[0] == 200

    on_site(test)
