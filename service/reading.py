"""Bodies of requests: bounded in bytes before anything is parsed, in seconds, and all together."""

import asyncio
from dataclasses import dataclass
from typing import TypeVar

from aiohttp import web

from helmsman.schemas.base import Document
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.read import parse_document
from helmsman.service.refusals import RefusedError, refused

DocumentT = TypeVar("DocumentT", bound=Document)

_AT_ONCE = 2**15
"""Larger bodies are parsed on another thread: 1 MiB of token ids takes 150 ms, too long for the loop."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Bytes of one body, bytes of all that are being read, and the seconds that one may take to arrive."""

    each: int = 2**20
    together: int = 2**26
    seconds: float = 30.0


class Bodies:
    """Reads requests, and knows how many bytes of bodies are held while they are."""

    def __init__(self, limits: BodyLimits) -> None:
        self._limits = limits
        self._held = 0

    @property
    def held(self) -> int:
        """Bytes of all bodies that are being read."""
        return self._held

    async def read(self, cls: type[DocumentT], request: web.Request) -> DocumentT:
        """The request as a `cls`. Raises RefusedError for what is too large, too slow or wrong."""
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise RefusedError(415, "invalid_request", "compressed bodies are not taken; send plain JSON")
        length = request.content_length
        if length is not None and length > self._limits.each:
            raise self._too_large()
        held = self._limits.each if length is None else length
        if self._held + held > self._limits.together:
            raise RefusedError(429, "bodies", "too many large requests at once; come again", retry_s=1)
        self._held += held
        try:
            return await self._parsed(cls, await self._body(request))
        finally:
            self._held -= held

    async def _body(self, request: web.Request) -> bytes:
        body = bytearray()
        try:
            async with asyncio.timeout(self._limits.seconds):
                async for piece in request.content.iter_any():
                    body += piece
                    if len(body) > self._limits.each:
                        raise self._too_large()
        except TimeoutError:
            message = f"the body did not arrive within {self._limits.seconds:g} s"
            raise RefusedError(408, "slow_body", message) from None
        return bytes(body)

    async def _parsed(self, cls: type[DocumentT], body: bytes) -> DocumentT:
        try:
            if len(body) <= _AT_ONCE:
                return parse_document(cls, body, "request")
            return await asyncio.to_thread(parse_document, cls, body, "request")
        except BadInputError as error:
            raise refused(error) from None

    def _too_large(self) -> RefusedError:
        message = f"the body is larger than the limit of {self._limits.each} bytes"
        return RefusedError(413, "too_large", message)
