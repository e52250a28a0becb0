"""Completions and conversations: what is asked is what comes, whole and streamed."""

import asyncio
from typing import Any

import pytest
from benchmarks.virtual_engine import VirtualEngine, tokens_of
from http_service import MODEL, Site, byte_text, on_site

from helmsman.executor.text.chat_template import ChatTemplate
from helmsman.executor.text.sampling import Sampling
from helmsman.executor.text.template_process import Renderer, RenderLimits
from helmsman.service.inference.generation import Job


def saying(text: str, *more: int) -> VirtualEngine:
    """An engine that says `text`, then `more`, and then spaces."""
    said = [*byte_text().encode(text), *more]
    return VirtualEngine(script=lambda job: [*said, *byte_text().encode(" " * 64)][: job.max_tokens])


def test_a_text_is_completed() -> None:
    async def test(site: Site) -> None:
        status, body, _ = await site.complete(prompt="Hey", max_tokens=5, model="tiny")
        assert status == 200
        assert body["object"] == "text_completion" and body["model"] == "tiny" and body["id"].startswith("cmpl-")
        expected = {"index": 0, "text": "Hello", "logprobs": None, "finish_reason": "length"}
        assert body["choices"] == [expected]
        counts = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
        assert body["usage"] == {**counts, "prompt_tokens_details": {"cached_tokens": 0}}

    on_site(test, saying("Hello"))


def test_token_ids_go_in_and_come_out() -> None:
    async def test(site: Site) -> None:
        asked = {"prompt": [5, 6, 7], "max_tokens": 4, "seed": 3, "return_token_ids": True, "ignore_eos": True}
        _, body, _ = await site.complete(**asked)
        job = Job((5, 6, 7), 4, seed=3)
        assert body["choices"][0]["token_ids"] == tokens_of(job, 256)
        assert body["choices"][0]["prompt_token_ids"] == [5, 6, 7]
        chunks = await site.events("/v1/completions", **asked)
        assert [token for chunk in chunks for token in chunk["choices"][0]["token_ids"]] == tokens_of(job, 256)

    on_site(test)


def test_a_conversation_goes_through_the_template() -> None:
    prompts: list[tuple[int, ...]] = []

    def script(job: Job) -> list[int]:
        prompts.append(job.prompt)
        return byte_text().encode("Yes.")[: job.max_tokens]

    async def test(site: Site) -> None:
        parts = [{"type": "text", "text": "Are "}, {"type": "text", "text": "you?"}]
        messages = [{"role": "developer", "content": "Be."}, {"role": "user", "content": parts}]
        asked = {"messages": messages, "max_completion_tokens": 4}
        _, body, _ = await site.post("/v1/chat/completions", asked)
        assert body["object"] == "chat.completion"
        assert body["choices"][0]["message"] == {"role": "assistant", "content": "Yes."}
        assert byte_text().decode(prompts[0]) == "s:Be.\nu:Are you?\n"
        chunks = await site.events("/v1/chat/completions", **asked)
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
        assert deltas[0]["role"] == "assistant" and all("role" not in delta for delta in deltas[1:])
        assert "".join(delta["content"] for delta in deltas) == "Yes."

    on_site(test, VirtualEngine(script=script))


def test_a_template_that_never_ends_is_that_requests_error_and_holds_up_nobody() -> None:
    """It is ended after its seconds of processor time; meanwhile others are answered."""
    endless = "{% for a in range(9999) %}" * 4 + "{% endfor %}" * 4
    source = "{% if messages[0].content == 'endless' %}" + endless + "{% endif %}{{ messages[0].content }}"

    async def test(site: Site) -> None:
        async def asked(content: str) -> tuple[int, Any]:
            body = {"messages": [{"role": "user", "content": content}], "max_completion_tokens": 2}
            return (await site.post("/v1/chat/completions", body))[:2]

        stuck, after = asyncio.create_task(asked("endless")), asyncio.create_task(asked("fine"))
        for _ in range(20):
            assert (await site.get("/health"))[0] == 200
            assert (await site.complete(prompt="Hey", max_tokens=1))[0] == 200
        status, body = await stuck
        assert status == 400 and body["error"]["type"] == "invalid_request_error"
        assert "takes more than 1 s" in body["error"]["message"]
        assert (await after)[0] == 200

    template = Renderer(ChatTemplate(source, {}, "here", own=True), RenderLimits(seconds=1.0))
    on_site(test, template=template)


@pytest.mark.parametrize("text", ["Gr\N{LATIN SMALL LETTER U WITH DIAERESIS}n \N{ROCKET}!"])
def test_characters_are_never_broken(text: str) -> None:
    """Every byte is a token here, so a rocket takes four."""

    async def test(site: Site) -> None:
        count = len(text.encode())
        chunks = await site.events("/v1/completions", prompt="x", max_tokens=count, return_token_ids=True)
        pieces = [chunk["choices"][0]["text"] for chunk in chunks]
        assert "".join(pieces) == text
        assert "\N{REPLACEMENT CHARACTER}" not in "".join(pieces)
        assert sum(len(chunk["choices"][0]["token_ids"]) for chunk in chunks) == count

    on_site(test, saying(text))


def test_a_stop_ends_it_and_is_not_shown_and_the_engine_is_told() -> None:
    async def test(site: Site) -> None:
        _, body, _ = await site.complete(prompt="x", max_tokens=60, stop=["END", "never"])
        assert body["choices"][0]["text"] == "one " and body["choices"][0]["finish_reason"] == "stop"
        assert body["usage"]["completion_tokens"] == len("one END")
        chunks = await site.events("/v1/completions", prompt="x", max_tokens=60, stop="END")
        assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "one "
        await site.until(lambda: len(site.engine.cancelled) == 2)

    on_site(test, saying("one END two"))


def test_what_looks_like_a_stop_is_shown_at_the_end() -> None:
    async def test(site: Site) -> None:
        _, body, _ = await site.complete(prompt="x", max_tokens=6, stop="END")
        assert body["choices"][0]["text"] == "one EN" and body["choices"][0]["finish_reason"] == "length"

    on_site(test, saying("one EN"))


@pytest.mark.parametrize(
    ("asked", "text", "finish"),
    [
        ({}, "ab", "stop"),
        ({"ignore_eos": True}, "abcd", "length"),
        ({"min_tokens": 3}, "abcd", "length"),
        ({"min_tokens": 3, "ignore_eos": True}, "abcd", "length"),
        ({"min_tokens": 2}, "ab", "stop"),
        ({"stop": "b"}, "a", "stop"),
        ({"min_tokens": 2, "stop": "b"}, "ab", "stop"),
        ({"min_tokens": 3, "stop": ["b", "bcd"]}, "a", "stop"),
        ({"ignore_eos": True, "stop_token_ids": [MODEL.eos[0]]}, "ab", "stop"),
    ],
)
def test_ends(asked: dict[str, Any], text: str, finish: str) -> None:
    """An end-of-sequence token ends an answer, unless it is ignored, and does not come too early; nor does a stop."""
    eos, letters = MODEL.eos[0], byte_text().encode("abcd")
    script = [*letters[:2], eos, *letters[2:], *letters]

    async def test(site: Site) -> None:
        _, body, _ = await site.complete(prompt="x", max_tokens=5, **asked)
        assert (body["choices"][0]["text"], body["choices"][0]["finish_reason"]) == (text, finish)

    on_site(test, VirtualEngine(script=lambda job: script[: job.max_tokens]))


def test_usage_comes_where_it_is_asked_for() -> None:
    async def test(site: Site) -> None:
        asked = {"prompt": "abc" * 6, "max_tokens": 3}
        assert all("usage" not in chunk for chunk in await site.events("/v1/completions", **asked))
        chunks = await site.events("/v1/completions", **asked, stream_options={"include_usage": True})
        assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["completion_tokens"] == 3
        assert chunks[-1]["usage"]["prompt_tokens_details"] == {"cached_tokens": 16}, "all whole blocks"
        assert all(chunk["usage"] is None for chunk in chunks[:-1])
        options = {"include_usage": True, "continuous_usage_stats": True}
        chunks = await site.events("/v1/completions", **asked, stream_options=options)
        counts = [chunk["usage"]["completion_tokens"] for chunk in chunks]
        assert counts == sorted(counts) and counts[-1] == 3

    on_site(test, saying("xyz"))


def test_sampling_reaches_the_engine() -> None:
    jobs: list[Job] = []

    def script(job: Job) -> list[int]:
        jobs.append(job)
        return [1]

    async def test(site: Site) -> None:
        cut = {"temperature": 0.5, "top_p": 0.9, "top_k": -1, "min_p": 0.1, "repetition_penalty": 1.5}
        await site.complete(prompt="a", max_tokens=1, **cut, seed=-1, priority=3)
        await site.complete(prompt="a", max_tokens=1, temperature=None, user="me", n=1, frequency_penalty=0.0)
        assert jobs[0].sampling == Sampling(0.5, 0, 0.9, 0.1, 1.5)
        assert (jobs[0].seed, jobs[0].priority) == (2**64 - 1, 3)
        assert jobs[1].sampling == Sampling(temperature=1.0)

    on_site(test, VirtualEngine(script=script))


def test_models_and_their_limits() -> None:
    async def test(site: Site) -> None:
        status, text = await site.get("/v1/models")
        assert status == 200 and '"id": "tiny"' in text and '"max_model_len": 4096' in text

    on_site(test)
