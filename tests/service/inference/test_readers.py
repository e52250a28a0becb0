"""Readers who leave, and readers who are slow: neither keeps the engine, memory or anybody else."""

import asyncio
import json
import socket
from dataclasses import replace

from benchmarks.virtual_engine import VirtualEngine
from http_service import OPTIONS, Site, on_site

LONG = {"prompt": "a", "max_tokens": 4000, "ignore_eos": True}


def stalling(site: Site, asked: dict[str, object]) -> socket.socket:
    """A connection that asks, and does not read."""
    host, _, port = site.url.removeprefix("http://").partition(":")
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    found.connect((host, int(port)))
    body = json.dumps(asked).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    found.sendall(head + b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    return found


def test_who_leaves_in_mid_stream_is_cancelled() -> None:
    async def test(site: Site) -> None:
        async with site.client.post(site.url + "/v1/completions", json={**LONG, "stream": True}) as answer:
            await answer.content.readany()
            answer.close()
        await site.until(lambda: site.engine.cancelled == [0])
        assert site.service.admission.requests == 0
        assert 'finished_reason="abort",model_name="tiny"} 1.0' in (await site.get("/metrics"))[1]

    on_site(test)


def test_who_leaves_while_waiting_is_cancelled() -> None:
    async def test(site: Site) -> None:
        for stream in (False, True):
            connection = stalling(site, {**LONG, "stream": stream})
            await site.until(lambda: site.service.admission.requests == 1)
            connection.close()
            await site.until(lambda: site.service.admission.requests == 0)
        await site.until(lambda: site.engine.cancelled == [0, 1])

    on_site(test, VirtualEngine(step_s=0.2))


def test_who_reads_nothing_is_cancelled_after_a_while() -> None:
    """Buffers on the way hold 64 KiB each and a half; the rest of 4000 chunks has nowhere to go."""

    async def test(site: Site) -> None:
        with stalling(site, {**LONG, "stream": True, "return_token_ids": True}):
            await site.until(lambda: site.service.admission.requests == 1)
            await site.until(lambda: site.service.admission.requests == 0)
        assert 'finished_reason="abort",model_name="tiny"} 1.0' in (await site.get("/metrics"))[1]
        assert 'reason="slow_reader"} 1.0' in (await site.get("/metrics"))[1]

    on_site(test, VirtualEngine(step_s=0.0), options=replace(OPTIONS, stall_s=0.1))


def test_who_reads_slowly_gets_everything() -> None:
    async def test(site: Site) -> None:
        with stalling(site, {**LONG, "max_tokens": 1000, "stream": True}) as connection:
            connection.setblocking(False)
            loop, found = asyncio.get_running_loop(), b""
            while not found.endswith(b"0\r\n\r\n"):
                found += await loop.sock_recv(connection, 2**14)
                await asyncio.sleep(0.001)
        assert found.count(b"data: ") >= 2 and b"[DONE]" in found and site.engine.cancelled == []

    on_site(test, VirtualEngine(step_s=0.0))
