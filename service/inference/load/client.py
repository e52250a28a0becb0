"""One request from the client's side: sent, read chunk by chunk, and timed."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import ClientError, ClientResponse, ClientSession

from helmsman.schemas.base import MAX_COUNT
from helmsman.service.inference.load.bounded_reads import text_of

Status = Literal["finished", "cancelled", "rejected", "failed"]

_END = b"\n\n"
_DATA = b"data:"
_DONE = b"[DONE]"
_ERROR_BYTES = 4096
"""Of the body of a refusal that are read."""
_EVENT_BYTES = 2**20
"""Of an event at most: a token with its text and identifier takes some hundred."""
_QUIET_BYTES = 2**20
"""That may come without a token: comments that keep a connection alive take some."""
_EXTRA_TOKENS = 16
"""That an answer may have beyond those that were asked for: servers differ by the last one."""
SILENCE_S = 1800.0
"""A server from which no token comes for so long is taken to have failed."""


class _OtherError(Exception):
    """The server speaks another language."""


@dataclass(slots=True)
class RequestRecord:
    """Moments in seconds of the loop's clock: `sent`, `moments` of the tokens that came, `ended` when it was over.

    Where chunks do not say which `tokens` they have, each that has text counts as one. `prompt_tokens`, `produced`,
    `reused_tokens` of the prompt: as the server counts them; None, as many as moments, and none where it does not."""

    row: int
    sent: float
    moments: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    ended: float = 0.0
    status: Status = "failed"
    prompt_tokens: int | None = None
    produced: int = 0
    reused_tokens: int = 0
    error: str = ""


async def observe(
    session: ClientSession, url: str, body: dict[str, Any], row: int, leave: float | None = None
) -> RequestRecord:
    """Send `body`, and read what comes until it ends, or until the moment to `leave`.

    An answer that cannot be one has failed: more tokens than were asked for, events or silence without end."""
    loop = asyncio.get_running_loop()
    observed = RequestRecord(row, loop.time())
    try:
        async with asyncio.timeout_at(leave), session.post(url, json=body) as response:
            await _read(response, observed, body["max_tokens"] + _EXTRA_TOKENS)
    except (ClientError, ConnectionError, _OtherError) as error:
        observed.status, observed.error = "failed", str(error) or type(error).__name__
    except TimeoutError:
        observed.status = "cancelled"
    observed.ended = loop.time()
    observed.produced = max(observed.produced, len(observed.moments))
    return observed


async def _read(response: ClientResponse, observed: RequestRecord, most: int) -> None:
    if response.status != 200:
        observed.status = "rejected" if 400 <= response.status < 500 else "failed"
        observed.error = f"{response.status}: {(await text_of(response, _ERROR_BYTES))[:500]}"
        return
    heard, quiet, tokens = observed.sent, 0, 0
    async for moment, size, events in _arrivals(response):
        for event in events:
            _note(event, moment, observed)
            if len(observed.moments) > most:
                raise _OtherError(f"more than the {most - _EXTRA_TOKENS} tokens that were asked for")
        heard, quiet = (moment, 0) if len(observed.moments) > tokens else (heard, quiet + size)
        tokens = len(observed.moments)
        if quiet > _QUIET_BYTES or moment > heard + SILENCE_S:
            raise _OtherError(f"no token in {quiet} bytes and {moment - heard:.0f} s")


async def _arrivals(response: ClientResponse) -> AsyncIterator[tuple[float, int, list[bytes]]]:
    """Yield the moment at which bytes came, how many, and the events that ended with them."""
    loop, rest = asyncio.get_running_loop(), b""
    while data := await response.content.readany():
        *events, rest = (rest + data).replace(b"\r\n", b"\n").split(_END)
        if len(rest) > _EVENT_BYTES:
            raise _OtherError(f"an event of more than {_EVENT_BYTES} bytes")
        yield loop.time(), len(data), events


def _note(event: bytes, moment: float, observed: RequestRecord) -> None:
    for data in _data(event):
        if data == _DONE:
            observed.status = "failed" if observed.error else "finished"
        else:
            _note_chunk(data, moment, observed)


def _data(event: bytes) -> Iterator[bytes]:
    """Return the data that an event carries; comments and other fields are left out."""
    return (line[len(_DATA) :].strip() for line in event.split(b"\n") if line.startswith(_DATA))


def _note_chunk(data: bytes, moment: float, observed: RequestRecord) -> None:
    try:
        _note_content(json.loads(data), moment, observed)
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError):
        raise _OtherError(f"not a chunk of an answer: {data[:80]!r}") from None


def _note_content(chunk: dict[str, Any], moment: float, observed: RequestRecord) -> None:
    if "error" in chunk:
        observed.error = str(chunk["error"].get("message", chunk["error"]))
    if choices := chunk.get("choices"):
        observed.moments.extend([moment] * _tokens(choices[0]))
        observed.tokens.extend(_count(token) for token in choices[0].get("token_ids") or ())
    if usage := chunk.get("usage"):
        prompt = usage.get("prompt_tokens")
        observed.prompt_tokens = None if prompt is None else _count(prompt)
        observed.produced = _count(usage.get("completion_tokens") or 0)
        observed.reused_tokens = _count((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0)


def _count(value: Any) -> int:
    """Return a number of tokens, or one's identifier. Raises ValueError for what is none."""
    if type(value) is not int or not 0 <= value <= MAX_COUNT:
        raise ValueError("not a count")
    return value


def _tokens(choice: dict[str, Any]) -> int:
    """Of servers that do not say: a chunk without text speaks of who answers, or of why it ends."""
    tokens = choice.get("token_ids")
    if tokens is not None:
        return len(tokens)
    text = choice["delta"].get("content") if "delta" in choice else choice.get("text")
    return 1 if text else 0
