"""One request from the client's side: sent, read chunk by chunk, and timed."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import ClientError, ClientResponse, ClientSession

Status = Literal["finished", "cancelled", "rejected", "failed"]

_END = b"\n\n"
_DATA = b"data:"
_DONE = b"[DONE]"


class _OtherError(Exception):
    """The server speaks another language."""


@dataclass(slots=True)
class Observed:
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
) -> Observed:
    """Send `body`, and read what comes until it ends, or until the moment to `leave`."""
    loop = asyncio.get_running_loop()
    found = Observed(row, loop.time())
    try:
        async with asyncio.timeout_at(leave), session.post(url, json=body) as response:
            await _read(response, found)
    except (ClientError, ConnectionError, _OtherError) as error:
        found.status, found.error = "failed", str(error) or type(error).__name__
    except TimeoutError:
        found.status = "cancelled"
    found.ended = loop.time()
    found.produced = max(found.produced, len(found.moments))
    return found


async def _read(response: ClientResponse, found: Observed) -> None:
    if response.status != 200:
        found.status = "rejected" if 400 <= response.status < 500 else "failed"
        found.error = f"{response.status}: {(await response.text())[:500]}"
        return
    async for moment, events in _arrivals(response):
        for event in events:
            _note(event, moment, found)


async def _arrivals(response: ClientResponse) -> AsyncIterator[tuple[float, list[bytes]]]:
    """Events, with the moment at which the last of their bytes came."""
    loop, rest = asyncio.get_running_loop(), b""
    while data := await response.content.readany():
        *events, rest = (rest + data).replace(b"\r\n", b"\n").split(_END)
        yield loop.time(), events


def _note(event: bytes, moment: float, found: Observed) -> None:
    for data in _data(event):
        if data == _DONE:
            found.status = "failed" if found.error else "finished"
        else:
            _note_chunk(data, moment, found)


def _data(event: bytes) -> Iterator[bytes]:
    """What an event carries; comments and other fields are left out."""
    return (line[len(_DATA) :].strip() for line in event.split(b"\n") if line.startswith(_DATA))


def _note_chunk(data: bytes, moment: float, found: Observed) -> None:
    try:
        _note_content(json.loads(data), moment, found)
    except (ValueError, TypeError, AttributeError, LookupError):
        raise _OtherError(f"not a chunk of an answer: {data[:80]!r}") from None


def _note_content(chunk: dict[str, Any], moment: float, found: Observed) -> None:
    if "error" in chunk:
        found.error = str(chunk["error"].get("message", chunk["error"]))
    if choices := chunk.get("choices"):
        found.moments.extend([moment] * _tokens(choices[0]))
        found.tokens.extend(choices[0].get("token_ids") or ())
    if usage := chunk.get("usage"):
        found.prompt_tokens, found.produced = usage.get("prompt_tokens"), usage.get("completion_tokens") or 0
        found.reused_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0


def _tokens(choice: dict[str, Any]) -> int:
    """Of servers that do not say: a chunk without text speaks of who answers, or of why it ends."""
    tokens = choice.get("token_ids")
    if tokens is not None:
        return len(tokens)
    text = choice["delta"].get("content") if "delta" in choice else choice.get("text")
    return 1 if text else 0
