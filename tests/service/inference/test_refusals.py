"""What is refused: with which status, in which words, and before what work."""

import asyncio
import logging
from dataclasses import replace
from typing import Any

import pytest
from benchmarks.virtual_engine import VirtualEngine
from http_service import OPTIONS, Site, on_site

from helmsman.service.http.bodies import BodyLimits
from helmsman.service.inference.service import Options

COMPLETIONS = "/v1/completions"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{", "not valid JSON"),
        (b"\xff{}", "utf-8"),
        (b'{"prompt": "\\ud800"}', "Invalid JSON"),
        (b"[" * 2000, "not valid JSON"),
        (b'{"prompt": "a", "prompt": "b"}', "duplicate key 'prompt'"),
        (b'{"prompt": "a", "temperature": NaN}', "NaN is not a number"),
        (b'{"prompt": "a", "temperature": 1e999}', "1e999 is not a number"),
        (b"[1]", "a JSON object is expected"),
        ({}, "prompt: Field required"),
        ({"prompt": ""}, "the prompt is empty"),
        ({"prompt": [1, 2.5]}, "neither a text nor token ids"),
        ({"prompt": [True]}, "neither a text nor token ids"),
        ({"prompt": [1, 320]}, "token ids are 0 to 319 (got 320)"),
        ({"prompt": [-1]}, "token ids are 0 to 319 (got -1)"),
        ({"prompt": ["a", "b"]}, "several prompts"),
        ({"prompt": "a", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "a", "max_tokens": True}, "max_tokens"),
        ({"prompt": "a", "max_tokens": 2, "min_tokens": 3}, "min_tokens: at most max_tokens, 2 (got 3)"),
        ({"prompt": "a", "temperature": -1}, "temperature"),
        ({"prompt": "a", "top_p": 0}, "top_p"),
        ({"prompt": "a", "n": 2}, "n: several answers are not offered here; leave the field out"),
        ({"prompt": "a", "logprobs": 1}, "logprobs: log probabilities are not offered here"),
        ({"prompt": "a", "echo": True}, "echo: echoes of the prompt are not offered here"),
        ({"prompt": "a", "presence_penalty": 0.5}, "presence_penalty: penalties by presence are not offered here"),
        ({"prompt": "a", "stop": [""]}, "stop"),
        ({"prompt": "a", "max_token": 5}, "max_token: Extra inputs are not permitted"),
    ],
)
def test_bad_requests_name_the_field(body: Any, said: str) -> None:
    async def test(site: Site) -> None:
        status, answer, _ = await site.post(COMPLETIONS, body)
        assert status == 400 and said in answer["error"]["message"], answer
        assert answer["error"]["type"] == "invalid_request_error"
        assert 'reason="invalid_request"} 1.0' in (await site.get("/metrics"))[1]

    on_site(test)


@pytest.mark.parametrize(
    "messages",
    [[], [{"role": "tool", "content": "a"}], [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]],
)
def test_bad_conversations(messages: list[Any]) -> None:
    async def test(site: Site) -> None:
        status, answer, _ = await site.post("/v1/chat/completions", {"messages": messages})
        assert status == 400 and answer["error"]["param"].startswith("messages")

    on_site(test)


def test_what_can_never_fit_is_refused_at_once_and_counted() -> None:
    async def test(site: Site) -> None:
        status, answer, _ = await site.complete(prompt=[1] * 4000, max_tokens=97)
        assert status == 400 and answer["error"]["code"] == "context_length_exceeded"
        assert "4000 tokens of prompt and 97 of answer: 4096 are the most here" in answer["error"]["message"]
        assert 'reason="context_length_exceeded"} 1.0' in (await site.get("/metrics"))[1]
        assert (await site.complete(prompt=[1] * 4000, max_tokens=96, stop_token_ids=list(range(256))))[0] == 200

    on_site(test)


def test_other_paths_methods_and_models() -> None:
    async def test(site: Site) -> None:
        assert (await site.complete(prompt="a", model="other"))[0] == 404
        assert (await site.post("/v1/embeddings", {}))[0] == 404
        async with site.client.get(site.url + COMPLETIONS) as answer:
            assert answer.status == 405 and answer.headers["Allow"] == "POST"
            assert (await answer.json())["error"]["type"] == "invalid_request_error"

    on_site(test)


def test_a_model_without_tokenizer_takes_token_ids_only() -> None:
    async def test(site: Site) -> None:
        status, body, _ = await site.complete(prompt=[1, 2], max_tokens=3, return_token_ids=True, ignore_eos=True)
        assert status == 200 and body["choices"][0]["text"] == "" and len(body["choices"][0]["token_ids"]) == 3
        for asked in ({"prompt": "a"}, {"prompt": [1], "stop": "a"}):
            status, body, _ = await site.complete(**asked)
            assert status == 400 and "no tokenizer" in body["error"]["message"]
        status, body, _ = await site.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]})
        assert status == 400 and "no tokenizer" in body["error"]["message"]

    on_site(test, text=None, template=None)


class _Sent:
    """A raw connection."""

    def __init__(self, site: Site) -> None:
        self._host, _, port = site.url.removeprefix("http://").partition(":")
        self._port = int(port)

    async def ask(self, *pieces: bytes) -> bytes:
        """What comes back, up to the end of the connection."""
        reader, writer = await asyncio.open_connection(self._host, self._port)
        try:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
            return await asyncio.wait_for(reader.read(), 60)
        finally:
            writer.close()


def head(**fields: Any) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    said = "Host: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
    return f"POST {COMPLETIONS} HTTP/1.1\r\n{said}{lines}\r\n".encode()


LIMITED = replace(OPTIONS, bodies=BodyLimits(body=1000, together=1500, client=1500, seconds=60))
ONE_CLIENT = replace(OPTIONS, bodies=BodyLimits(body=1000, together=10**6, client=1500, seconds=60))
IMPATIENT = replace(OPTIONS, bodies=BodyLimits(body=1000, together=1500, client=1500, seconds=0.1), idle_s=0.2)


def test_too_large_a_body_is_refused_before_it_is_read() -> None:
    async def test(site: Site) -> None:
        assert b"413" in (await _Sent(site).ask(head(Content_Length=60 * 2**20)))[:20]
        chunk = b"200\r\n" + b" " * 512 + b"\r\n"
        assert b"413" in (await _Sent(site).ask(head(Transfer_Encoding="chunked"), chunk, chunk))[:20]

    on_site(test, options=LIMITED)


def test_a_body_that_does_not_arrive_is_not_waited_for() -> None:
    async def test(site: Site) -> None:
        assert b"408" in (await _Sent(site).ask(head(Content_Length=100), b"{"))[:20]

    on_site(test, options=IMPATIENT)


@pytest.mark.parametrize("options", [LIMITED, ONE_CLIENT])
def test_bodies_are_bounded_together_and_by_client(options: Options) -> None:
    async def test(site: Site) -> None:
        slow = asyncio.create_task(_Sent(site).ask(head(Content_Length=1000), b" " * 900))
        await site.until(lambda: site.service.bodies.held == 900)
        status, _, headers = await site.complete(prompt="a" * 700)
        assert status == 429 and headers["Retry-After"] == "1"
        slow.cancel()
        await site.until(lambda: site.service.bodies.held == 0)
        assert (await site.complete(prompt="a" * 700, max_tokens=1))[0] == 200

    on_site(test, options=options)


def test_what_is_announced_and_does_not_come_locks_nobody_out() -> None:
    async def test(site: Site) -> None:
        slow = [asyncio.create_task(_Sent(site).ask(head(Content_Length=1000), b"{")) for _ in range(64)]
        await site.until(lambda: site.service.bodies.held == 64)
        assert (await site.complete(prompt="a" * 700, max_tokens=1))[0] == 200
        for each in slow:
            each.cancel()
        await site.until(lambda: site.service.bodies.held == 0)

    on_site(test, options=LIMITED)


def test_compressed_bodies_are_not_taken() -> None:
    async def test(site: Site) -> None:
        assert b"415" in (await _Sent(site).ask(head(Content_Length=2, Content_Encoding="gzip"), b"{}"))[:20]

    on_site(test, options=LIMITED)


def test_connections_that_ask_nothing_are_closed() -> None:
    async def test(site: Site) -> None:
        asked = (_Sent(site).ask(*pieces) for pieces in ([], [b"POST /v1/comp"], [head(Content_Length=1)[:-2]]))
        results = await asyncio.gather(*asked, return_exceptions=True)
        assert all(result == b"" or isinstance(result, ConnectionResetError) for result in results)

    on_site(test, options=IMPATIENT)


@pytest.mark.parametrize("line", [b"GARBAGE\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", b"GET / HTTP/9.9\r\n\r\n"])
def test_what_is_not_http_is_refused(line: bytes) -> None:
    async def test(site: Site) -> None:
        assert b" 400 " in (await _Sent(site).ask(line + b"\r\n\r\n"))[:20]
        assert (await site.get("/health"))[0] == 200

    on_site(test, VirtualEngine(), options=LIMITED)


MALFORMED = {
    "no method": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "a second one": b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n\x00\x01 x\r\n\r\n",
    "a header": b"GET / HTTP/1.1\r\nHost: localhost\r\nbad header\x00: x\r\n\r\n",
    "a line": b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n",
    "a version": b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
    "two lengths": b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
    "chunks": b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("case", MALFORMED)
def test_what_is_no_http_leaves_no_traceback(case: str, caplog: pytest.LogCaptureFixture) -> None:
    async def test(site: Site) -> None:
        host, _, port = site.url.removeprefix("http://").partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(MALFORMED[case])
        answer = await asyncio.wait_for(reader.readline(), 30)
        writer.close()
        assert answer.startswith(b"HTTP/1.") and b" 500 " not in answer
        assert (await site.get("/health"))[0] == 200

    with caplog.at_level(logging.WARNING):
        on_site(test)
    assert not caplog.records, caplog.text
