"""The load generator against our own service, and against servers that say less."""

import asyncio
import io
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from aiohttp import ClientSession, web
from benchmarks.virtual_engine import VirtualEngine
from http_service import OPTIONS, Site, on_site
from together import together

from helmsman.schemas.requests import Requests, make_requests
from helmsman.schemas.served_table import (
    CANCELLED,
    FAILED,
    FINISHED,
    REJECTED,
    ServedInfo,
    ServedTable,
    read_served,
    write_served,
)
from helmsman.service.http.listening import address, listen
from helmsman.service.inference.load.client import RequestRecord, observe
from helmsman.service.inference.load.prompts import id_prompts, word_prompts
from helmsman.service.inference.load.replay import replay
from helmsman.service.inference.load.replay_table import table_of_replay
from helmsman.service.inference.load.request_form import RequestForm

INFO = ServedInfo(source="measured", policy="neo", requests="here")


def requests(
    arrivals: list[float], prompts: list[int], outputs: list[int], cancel: list[float] | None = None
) -> Requests:
    leaves = None if cancel is None else np.array(cancel)
    return make_requests(np.array(arrivals), np.array(prompts), np.array(outputs), cancel_s=leaves)


def served(site: Site, asked: Requests, concurrency: int | None = None, **more: object) -> Awaitable[ServedTable]:
    async def run() -> ServedTable:
        form = RequestForm(asked, id_prompts(asked, 0), **more)
        return table_of_replay(asked, await replay(site.url, form, concurrency), INFO)

    return run()


def test_what_comes_is_timed_and_read_back(tmp_path: Path) -> None:
    asked = requests([0.0, 0.0, 0.05], [5, 40, 7], [10, 20, 1])

    async def test(site: Site) -> None:
        found = await served(site, asked)
        assert found.status.tolist() == [FINISHED] * 3
        assert found.prompt_tokens.tolist() == [5, 40, 7] and found.produced.tolist() == [10, 20, 1]
        assert np.diff(found.gaps.start).tolist() == [9, 19, 0]
        lasting = found.finish_s - found.first_token_s
        sums = [found.gaps.first_s[start:end].sum() for start, end in pairwise(found.gaps.start)]
        assert lasting == pytest.approx(sums)
        assert (found.first_token_s >= found.arrival_s + 0.002).all()
        buffer = io.BytesIO()
        write_served(found, buffer)
        (tmp_path / "served.parquet").write_bytes(buffer.getvalue())
        assert read_served(tmp_path / "served.parquet").finish_s.tolist() == found.finish_s.tolist()

    on_site(test, VirtualEngine(step_s=0.002))


def test_who_leaves_and_who_is_not_let_in() -> None:
    asked = requests([0.0, 0.0, 0.0], [5, 4090, 5], [4000, 20, 5], [0.1, np.inf, np.inf])

    async def test(site: Site) -> None:
        found = await served(site, asked)
        assert found.status.tolist() == [CANCELLED, REJECTED, FINISHED]
        assert found.finish_s[0] >= 0.1 and found.produced[0] < 4000
        assert np.isnan(found.first_token_s[1])
        await site.until(lambda: site.engine.cancelled != [])

    on_site(test, VirtualEngine(step_s=0.01))


def test_faults_are_failures() -> None:
    asked = requests([0.0, 0.3], [5, 5], [4000, 4000])

    async def test(site: Site) -> None:
        task = asyncio.create_task(_served(site, asked))
        await site.until(lambda: site.engine.load().running >= 1)
        site.engine.break_down()
        assert (await task).status.tolist() == [FAILED, FAILED]

    async def _served(site: Site, asked: Requests) -> ServedTable:
        return await served(site, asked)

    on_site(test, VirtualEngine(step_s=0.002))


def test_with_a_concurrency_waiting_counts() -> None:
    asked = requests([0.0, 0.0], [5, 5], [20, 20])

    async def test(site: Site) -> None:
        found = await served(site, asked, concurrency=1)
        first, second = np.argsort(found.finish_s)
        assert found.first_token_s[second] > found.finish_s[first] and found.arrival_s[second] == 0

    on_site(test, VirtualEngine(step_s=0.002))


def test_conversations_and_words() -> None:
    asked = requests([0.0], [5], [8])

    async def test(site: Site) -> None:
        form = RequestForm(asked, word_prompts(asked, 0), chat=True, plain=True, model="tiny")
        found = table_of_replay(asked, await replay(site.url, form), INFO)
        assert found.status.tolist() == [FINISHED] and found.produced.tolist() == [8]
        assert found.prompt_tokens[0] > 5  # words are several bytes, and the template adds some

    on_site(test, options=OPTIONS)


def test_prompts_of_equal_hashes_begin_alike() -> None:
    columns = make_requests(np.zeros(3), np.array([1000, 1030, 1030]), np.ones(3, np.int64)).columns()
    hashed = Requests(**columns | {"hash_start": np.array([0, 2, 4, 6]), "hash_block": 512,
                                   "hashes": np.array([7, 8, 7, 9, 5, 8])})  # fmt: skip
    one, two, three = (id_prompts(hashed, 3)(row) for row in range(3))
    assert [len(one), len(two), len(three)] == [1000, 1030, 1030]
    assert one[:512] == two[:512] and one[512:] != two[512:1000] and one[:512] != three[:512]
    assert all(16 <= token < 256 for token in [*one, *two])


def answered(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> RequestRecord:
    """What is observed of a server that answers so."""

    async def run() -> RequestRecord:
        app = web.Application()
        app.router.add_post("/", handler)
        runner, listener = web.AppRunner(app), listen("127.0.0.1", 0)
        await runner.setup()
        await web.SockSite(runner, listener).start()
        try:
            async with ClientSession() as session:
                return await observe(session, address(listener) + "/", {"max_tokens": 8}, 0)
        finally:
            await runner.cleanup()

    return asyncio.run(run())


def sending(*pieces: bytes, drop: bool = False) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
            await asyncio.sleep(0.002)
        if drop:
            assert request.transport is not None
            request.transport.abort()
        return response

    return handler


def test_chunks_of_other_servers() -> None:
    """Comments, CRLF, events in pieces, roles and endings without text; the server's own count wins."""
    found = answered(
        sending(
            b": ping\r\n\r\n",
            b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\r\n\r\ndata: {"choices":[{"del',
            b'ta":{"content":"a"}}]}\r\n\r\n',
            b'event: x\ndata:{"choices":[{"text":"b"}]}\n\n',
            b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n',
            b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":5,'
            b'"prompt_tokens_details":{"cached_tokens":2}}}\n\ndata: [DONE]\n\n',
        )
    )
    assert (found.status, len(found.moments), found.prompt_tokens, found.produced) == ("finished", 2, 3, 5)
    assert found.tokens == [] and found.reused_tokens == 2


def test_tokens_of_chunks_that_say_them() -> None:
    found = answered(
        sending(
            b'data: {"choices":[{"text":"ab","token_ids":[7,9]}]}\n\n',
            b'data: {"choices":[{"text":"","token_ids":[3],"finish_reason":"length"}]}\n\ndata: [DONE]\n\n',
        )
    )
    assert (found.status, len(found.moments), found.tokens) == ("finished", 3, [7, 9, 3])


@together(
    ("handler", "status"),
    [
        (sending(b'data: {"choices":[{"text":"b"}]}\n\n', drop=True), "failed"),
        (sending(b'data: {"choices":[{"text":"b"}]}\n\n'), "failed"),
        (sending(b'data: {"error":{"message":"no"}}\n\ndata: [DONE]\n\n'), "failed"),
        (sending(b"data: {broken\n\n"), "failed"),
        (sending(b'data: [1]\n\ndata: {"choices":[1]}\n\n'), "failed"),
        (sending(b"data: " + b"[" * 100_000 + b"\n\n"), "failed"),
        (sending(b'data: {"choices":[{"token_ids":[1e3]}]}\n\ndata: [DONE]\n\n'), "failed"),
        (sending(b'data: {"choices":[{"token_ids":[-1]}]}\n\ndata: [DONE]\n\n'), "failed"),
        (sending(b'data: {"usage":{"completion_tokens":1' + b"0" * 300 + b"}}\n\ndata: [DONE]\n\n"), "failed"),
        (sending(b'data: {"usage":{"prompt_tokens":1e400}}\n\ndata: [DONE]\n\n'), "failed"),
        (sending(b"data: " + b"x" * 2**21), "failed"),
    ],
)
def test_answers_that_break_off_have_failed(
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]], status: str
) -> None:
    assert answered(handler).status == status


def endless(piece: bytes) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(piece)

    return handler


@pytest.mark.parametrize(
    ("piece", "said"),
    [
        (b'data: {"choices":[{"text":"b"}]}\n\n', "more than the 8 tokens"),
        (b": still here\n\n" * 100, "no token in"),
        (b"no end of a line", "an event of more than"),
    ],
    ids=["tokens", "comments", "an event"],
)
def test_answers_without_end_are_cut(piece: bytes, said: str) -> None:
    found = answered(endless(piece))
    assert found.status == "failed" and said in found.error
    assert len(found.moments) < 30


def test_of_an_endless_refusal_little_is_read() -> None:
    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=429)
        await response.prepare(request)
        while True:
            await response.write(b"no" * 1000)

    found = answered(handler)
    assert found.status == "rejected" and len(found.error) < 600


def test_a_server_that_is_not_there_fails() -> None:
    async def run() -> RequestRecord:
        listener = listen("127.0.0.1", 0)
        url = address(listener)
        listener.close()
        async with ClientSession() as session:
            return await observe(session, url, {}, 0)

    found = asyncio.run(run())
    assert found.status == "failed" and found.error
