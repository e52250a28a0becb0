"""One request while it is generated: submitted, read piece by piece, closed wherever it is left."""

import time
from collections.abc import AsyncIterator

from helmsman.executor.text.tokenizer import Text
from helmsman.service.http.refusals import RefusedError
from helmsman.service.inference.answers import Usage
from helmsman.service.inference.delivery import Delivery, Mailbox, TimedTokens
from helmsman.service.inference.generation import Generator
from helmsman.service.inference.jobs import TextJob
from helmsman.service.inference.metrics import Metrics, RequestOutcome
from helmsman.service.inference.replies import Finish, Piece, Reply


class RunningRequest:
    """Made when it arrives, and read by one reader."""

    def __init__(
        self, engine: Generator, wanted: TextJob, text: Text | None, mailbox: Mailbox, metrics: Metrics
    ) -> None:
        self._engine, self._wanted, self._metrics = engine, wanted, metrics
        self.delivery = Delivery(mailbox)
        self.reply = Reply(text, wanted.stops, wanted.job.min_tokens)
        self._started = time.monotonic()
        self._first: float | None = None
        self._last = self._started
        self._finish: Finish | None = None

    def submit(self) -> None:
        """Raises HelmError where the engine does not take it."""
        self._submitted = self._engine.submit(self._wanted.job, self.delivery.on_token, self.delivery.on_end)

    def close(self) -> None:
        """Nobody waits for it any more."""
        self.delivery.end("cancelled")
        if self.delivery.early:
            self._submitted.cancel()

    @property
    def failed(self) -> bool:
        """Whether the engine's fault ended it."""
        return self.delivery.ended == "failed"

    @property
    def usage(self) -> Usage:
        """Return tokens so far."""
        return Usage(len(self._wanted.job.prompt), self.reply.count, self._submitted.cached())

    async def pieces(self) -> AsyncIterator[Piece]:
        """Yield the pieces that arrive, up to and with the piece that finishes. Raises RefusedError where nothing more
        will come."""
        while self._finish is None:
            arrived = await self.delivery.arrived()
            self._measure(arrived)
            piece = self.reply.push(arrived.tokens, arrived.ended)
            self._finish = piece.finish
            if piece.tokens or piece.finish:
                yield piece
            if self._finish is None and arrived.ended is not None:
                raise _interrupted(self.delivery)

    def outcome(self) -> RequestOutcome:
        """Return what came of the request."""
        started, first = self._started, self._first
        return RequestOutcome(
            reason=self._finish or ("error" if self.delivery.ended in ("failed", "refused") else "abort"),
            prompt_tokens=len(self._wanted.job.prompt),
            answer_tokens=self.reply.count,
            latency_s=time.monotonic() - started,
            first_s=None if first is None else first - started,
            last_s=self._last - started,
        )

    def _measure(self, arrived: TimedTokens) -> None:
        for moment in arrived.moments:
            if self._first is None:
                self._first = moment
            else:
                self._metrics.gap(moment - self._last)
            self._last = moment


def _interrupted(delivery: Delivery) -> RefusedError:
    if delivery.ended == "failed":
        return RefusedError(503, "device_fault", "a device failed; nothing is served until a canary passes", retry_s=5)
    if delivery.ended == "refused":
        return RefusedError(503, "memory", "the engine has no room for this request; come again", retry_s=5)
    return RefusedError(503, "stopping", "the server is stopping", retry_s=5)
