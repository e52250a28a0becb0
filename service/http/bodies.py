"""Bodies of requests: bounded in bytes before anything is parsed, in seconds, and all together."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from helmsman.service.http.refusals import RefusedError


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """Bytes of one body, bytes that have come of all that are being read, bytes of those of one client (by address; at
    least those of one body), and the seconds that one may take to arrive."""

    body: int = 2**20
    together: int = 2**26
    client: int = 2**24
    seconds: float = 30.0


@dataclass(frozen=True, slots=True)
class ArrivingBody:
    """A body on its way: `pieces` as they come, from `client`; `length` and `encoding` as its headers announce them."""

    pieces: AsyncIterator[bytes]
    client: str
    length: int | None
    encoding: str


class HeldBodies:
    """Reads bodies, and knows how many bytes of them are held while it does, or while what was read waits: those that
    came, not those that were announced, which cost nothing and may never come."""

    def __init__(self, limits: BodyLimits) -> None:
        self._limits = limits
        self._of: Counter[str] = Counter()

    @property
    def held(self) -> int:
        """Return bytes that have come of all bodies that are being read."""
        return self._of.total()

    @asynccontextmanager
    async def read(self, arriving: ArrivingBody) -> AsyncIterator[bytes]:
        """Give the content of a body, which counts as held until the block ends. Raises RefusedError for what is too
        large, too slow, or compressed."""
        if arriving.encoding.lower() != "identity":
            raise RefusedError(415, "invalid_request", "compressed bodies are not taken; send plain JSON")
        if arriving.length is not None and arriving.length > self._limits.body:
            raise self._too_large()
        body = bytearray()
        try:
            await self._fill(body, arriving)
            yield bytes(body)
        finally:
            self._release(arriving.client, len(body))

    @contextmanager
    def hold(self, client: str, size: int) -> Iterator[None]:
        """While this lasts, a body that was read still counts as held. Raises RefusedError."""
        self._of[client] += size
        try:
            self._check_held(client)
            yield
        finally:
            self._release(client, size)

    def _release(self, client: str, size: int) -> None:
        self._of[client] -= size
        if not self._of[client]:
            del self._of[client]

    async def _fill(self, body: bytearray, arriving: ArrivingBody) -> None:
        """Put what comes into `body`, whose bytes count as held by the client."""
        try:
            async with asyncio.timeout(self._limits.seconds):
                async for piece in arriving.pieces:
                    body += piece
                    self._of[arriving.client] += len(piece)
                    if len(body) > self._limits.body:
                        raise self._too_large()
                    self._check_held(arriving.client)
        except TimeoutError:
            message = f"the body did not arrive within {self._limits.seconds:g} s"
            raise RefusedError(408, "slow_body", message) from None

    def _check_held(self, client: str) -> None:
        most = max(self._limits.client, self._limits.body)
        if self.held > self._limits.together or self._of[client] > most:
            raise RefusedError(429, "bodies", "too many large requests at once; come again", retry_s=1)

    def _too_large(self) -> RefusedError:
        message = f"the body is larger than the limit of {self._limits.body} bytes"
        return RefusedError(413, "too_large", message)
