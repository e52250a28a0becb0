"""Tokens on their way from an engine's threads to the loop that answers."""

import asyncio
import time
from collections import deque
from dataclasses import dataclass

from helmsman.service.inference.generation import Ended


@dataclass(frozen=True, slots=True)
class TimedTokens:
    """Tokens with the moments (seconds of CLOCK_MONOTONIC) at which they were made; why none follow, if none do."""

    tokens: tuple[int, ...]
    moments: tuple[float, ...]
    ended: Ended | None


class Mailbox:
    """Carries what threads post into the loop: one wake-up for all that came since the last.

    Many requests get a token in one iteration, and waking the loop for each would cost the engine a system call."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._posted: deque[tuple[Delivery, int | Ended, float]] = deque()
        self._awake = False

    def post(self, delivery: "Delivery", what: int | Ended) -> None:
        """From any thread. The flag is looked at after appending, and cleared before emptying: nothing stays behind."""
        self._posted.append((delivery, what, time.monotonic()))
        if not self._awake:
            self._awake = True
            self._loop.call_soon_threadsafe(self._empty)

    def _empty(self) -> None:
        self._awake = False
        while self._posted:
            delivery, what, moment = self._posted.popleft()
            delivery.take(what, moment)


class Delivery:
    """The tokens that have come for one request and are not yet written: at most the tokens that were promised to it.

    `ended`: why nothing follows; `early`: whether the engine may still be at it."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._tokens: list[int] = []
        self._moments: list[float] = []
        self._waiter: asyncio.Future[None] | None = None
        self.ended: Ended | None = None
        self.early = False

    def on_token(self, token: int) -> None:
        """From any thread."""
        self._mailbox.post(self, token)

    def on_end(self, ended: Ended) -> None:
        """From any thread."""
        self._mailbox.post(self, ended)

    def take(self, what: int | Ended, moment: float) -> None:
        """In the loop: a token, or the end. Nothing counts after the end."""
        if self.ended is not None:
            return
        if isinstance(what, str):
            self.ended = what
        else:
            self._tokens.append(what)
            self._moments.append(moment)
        self._tell()

    def end(self, ended: Ended) -> None:
        """In the loop: end before the engine does, if it has not; whatever it makes from now on is for nobody."""
        if self.ended is None:
            self.ended, self.early = ended, True
            self._tell()

    def _tell(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def arrived(self) -> TimedTokens:
        """Return all that has come since the last time, once there is something."""
        if not self._tokens and self.ended is None:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        tokens, self._tokens = self._tokens, []
        moments, self._moments = self._moments, []
        return TimedTokens(tuple(tokens), tuple(moments), self.ended)
