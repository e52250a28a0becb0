"""Bodies of requests to an aiohttp server, as documents."""

from typing import TypeVar

from aiohttp import web

from helmsman.schemas.base import Document
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.read import parse_document
from helmsman.service.http.bodies import ArrivingBody, BodyLimits, HeldBodies
from helmsman.service.inference.body_process import BodyProcess
from helmsman.service.inference.refusals import refused

DocumentT = TypeVar("DocumentT", bound=Document)

_AT_ONCE = 2**15
"""Larger bodies are parsed apart: 1 MiB of token ids takes 0.4 s, too long for the loop and for the engine."""


class Bodies:
    """Reads requests."""

    def __init__(self, limits: BodyLimits, helper: BodyProcess) -> None:
        self._bodies, self._helper = HeldBodies(limits), helper

    @property
    def held(self) -> int:
        """Return bytes that have come of all bodies that are being read."""
        return self._bodies.held

    async def read(self, cls: type[DocumentT], request: web.Request) -> DocumentT:
        """Return the request as a `cls`. Raises RefusedError for what is too large, too slow or wrong."""
        encoding = request.headers.get("Content-Encoding", "identity")
        pieces = request.content.iter_any()
        arriving = ArrivingBody(pieces, request.remote or "", request.content_length, encoding)
        async with self._bodies.read(arriving) as body:
            return await self._parsed(cls, body)

    async def _parsed(self, cls: type[DocumentT], body: bytes) -> DocumentT:
        try:
            if len(body) <= _AT_ONCE:
                return parse_document(cls, body, "request")
            return await self._helper.parse(cls, body)
        except BadInputError as error:
            raise refused(error) from None
