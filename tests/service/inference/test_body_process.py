"""What takes long is done in another process: with the same results, and an end where it takes too long."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from http_service import byte_text
from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split

from helmsman.executor.text.tokenizer import Text
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.read import parse_document
from helmsman.service.http.refusals import RefusedError
from helmsman.service.inference import body_process
from helmsman.service.inference.body_process import BodyProcess
from helmsman.service.inference.openai_requests import CompletionRequest

ResultT = TypeVar("ResultT")

BODIES = [
    b'{"prompt": [%s1], "max_tokens": 3}' % (b"1," * 50_000),
    b'{"prompt": 3}',
    b'{"prompt": [1], "prompt": [2]}',
    b'{"prompt": "%s", "temperature": -1}' % (b"x" * 10_000),
    b"[" * 100_000,
    b"\xff",
]


def with_apart(text: Text | None, use: Callable[[BodyProcess], Awaitable[ResultT]]) -> ResultT:
    async def test() -> ResultT:
        there = BodyProcess(text)
        try:
            return await use(there)
        finally:
            there.close()

    return asyncio.run(test())


def test_bodies_are_read_as_they_are_here() -> None:
    def outcome(found: object) -> object:
        if isinstance(found, CompletionRequest):
            return found
        assert isinstance(found, BadInputError), found
        return found.message, found.file, found.field, found.remedy, str(found.value)[:80]

    def here(body: bytes) -> object:
        try:
            return outcome(parse_document(CompletionRequest, body, "request"))
        except BadInputError as error:
            return outcome(error)

    async def all_of_them(there: BodyProcess) -> list[object]:
        found = await asyncio.gather(*(there.parse(CompletionRequest, body) for body in BODIES), return_exceptions=True)
        return [outcome(each) for each in found]

    assert with_apart(None, all_of_them) == [here(body) for body in BODIES]


def test_texts_become_the_same_tokens() -> None:
    text = "a b\n\N{EURO SIGN}" * 5000

    async def encoded(there: BodyProcess) -> list[int]:
        return list(await there.encode(text, True))

    assert with_apart(byte_text(), encoded) == byte_text().encode(text)


def test_what_takes_too_long_is_ended_and_the_next_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern that looks again from every place, for as long as there are places."""
    monkeypatch.setattr(body_process, "_SECONDS", 1.0)
    monkeypatch.setattr(body_process, "_PATIENCE", 300.0)  # busy machines leave little to who gives way
    tokenizer = Tokenizer(WordLevel({"a": 0, "b": 1}, unk_token="b"))
    tokenizer.pre_tokenizer = Split(Regex("a*a*$"), "isolated")

    async def both(there: BodyProcess) -> list[int]:
        with pytest.raises(RefusedError, match="takes more than 1 s") as error:
            await there.encode("a" * 3000 + "b", True)
        assert error.value.status == 400
        return list(await there.encode("ab", True))

    assert with_apart(Text(tokenizer), both) == [1]


def test_who_leaves_leaves_no_answer_to_the_next() -> None:
    async def leaving(there: BodyProcess) -> None:
        whole = await there.parse(CompletionRequest, BODIES[0])
        left = [asyncio.create_task(there.parse(CompletionRequest, BODIES[0])) for _ in range(3)]
        await asyncio.sleep(0.001)
        for each in left:
            each.cancel()
        found = await there.parse(CompletionRequest, b'{"prompt": [7]}')
        assert found.prompt == (7,)
        for each in await asyncio.gather(*left, return_exceptions=True):  # a fast machine may have answered one
            assert isinstance(each, asyncio.CancelledError) or each == whole

    with_apart(None, leaving)


def test_a_closed_one_refuses() -> None:
    async def asked_again(there: BodyProcess) -> None:
        await there.parse(CompletionRequest, BODIES[0])
        there.close()
        with pytest.raises(RefusedError, match="stopping"):
            await there.parse(CompletionRequest, BODIES[0])

    with_apart(None, asked_again)


def test_closing_ends_what_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Tokenizer(WordLevel({"a": 0, "b": 1}, unk_token="b"))
    tokenizer.pre_tokenizer = Split(Regex("a*a*$"), "isolated")

    async def closed(there: BodyProcess) -> None:
        call = asyncio.create_task(there.encode("a" * 3000 + "b", True))
        while there._process is None:
            await asyncio.sleep(0.01)
        there.close()
        with pytest.raises(RefusedError, match="stopping"):
            await call

    with_apart(Text(tokenizer), closed)
