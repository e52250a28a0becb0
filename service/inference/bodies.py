"""Bodies of requests: bounded in bytes before anything is parsed, in seconds, and all together."""

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import TypeVar

from aiohttp import web

from helmsman.schemas.base import Document
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.read import parse_document
from helmsman.service.inference.body_process import BodyProcess
from helmsman.service.inference.refusals import RefusedError, refused

DocumentT = TypeVar("DocumentT", bound=Document)

_AT_ONCE = 2**15
"""Larger bodies are parsed apart: 1 MiB of token ids takes 0.4 s, too long for the loop and for the engine."""


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Bytes of one body, bytes that have come of all that are being read, bytes of those of one client (by address; at
    least those of one body), and the seconds that one may take to arrive."""

    body: int = 2**20
    together: int = 2**26
    client: int = 2**24
    seconds: float = 30.0


class Bodies:
    """Reads requests, and knows how many bytes of bodies are held while they are: those that came, not those that were
    announced, which cost nothing and may never come."""

    def __init__(self, limits: BodyLimits, helper: BodyProcess) -> None:
        self._limits, self._helper = limits, helper
        self._of: Counter[str] = Counter()

    @property
    def held(self) -> int:
        """Return bytes that have come of all bodies that are being read."""
        return self._of.total()

    async def read(self, cls: type[DocumentT], request: web.Request) -> DocumentT:
        """Return the request as a `cls`. Raises RefusedError for what is too large, too slow or wrong."""
        if request.headers.get("Content-Encoding", "identity") != "identity":
            raise RefusedError(415, "invalid_request", "compressed bodies are not taken; send plain JSON")
        length = request.content_length
        if length is not None and length > self._limits.body:
            raise self._too_large()
        client, body = request.remote or "", bytearray()
        try:
            await self._fill(body, request, client)
            return await self._parsed(cls, bytes(body))
        finally:
            self._of[client] -= len(body)
            if not self._of[client]:
                del self._of[client]

    async def _fill(self, body: bytearray, request: web.Request, client: str) -> None:
        """Put what comes into `body`, whose bytes count as held by `client`."""
        try:
            async with asyncio.timeout(self._limits.seconds):
                async for piece in request.content.iter_any():
                    body += piece
                    self._of[client] += len(piece)
                    if len(body) > self._limits.body:
                        raise self._too_large()
                    self._check_held(client)
        except TimeoutError:
            message = f"the body did not arrive within {self._limits.seconds:g} s"
            raise RefusedError(408, "slow_body", message) from None

    def _check_held(self, client: str) -> None:
        most = max(self._limits.client, self._limits.body)
        if self.held > self._limits.together or self._of[client] > most:
            raise RefusedError(429, "bodies", "too many large requests at once; come again", retry_s=1)

    async def _parsed(self, cls: type[DocumentT], body: bytes) -> DocumentT:
        try:
            if len(body) <= _AT_ONCE:
                return parse_document(cls, body, "request")
            return await self._helper.parse(cls, body)
        except BadInputError as error:
            raise refused(error) from None

    def _too_large(self) -> RefusedError:
        message = f"the body is larger than the limit of {self._limits.body} bytes"
        return RefusedError(413, "too_large", message)
