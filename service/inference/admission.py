"""Which requests are let in: so many at once, and so many tokens of keys and values promised to them."""

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil

from helmsman.service.http.refusals import RefusedError
from helmsman.service.inference.generation import EngineCapacity, Job

_REMEMBERED = 32
_LONGEST_RETRY = 60


@dataclass(frozen=True, slots=True)
class Bounds:
    """At most so many requests in the engine, running or waiting, and so many tokens promised to all of them."""

    requests: int
    tokens: int


class Admission:
    """Counts what is in, and says when to come again.

    `clock`: seconds, of which only differences count."""

    def __init__(self, bounds: Bounds, capacity: EngineCapacity, clock: Callable[[], float]) -> None:
        self._bounds, self._capacity, self._clock = bounds, capacity, clock
        self._ends: deque[float] = deque(maxlen=_REMEMBERED)
        self.requests = 0
        self.tokens = 0

    @contextmanager
    def admitted(self, job: Job) -> Iterator[None]:
        """While this lasts, `job` is in. Raises RefusedError (429) where there is no room for it now."""
        tokens = self._capacity.blocks(job.most_tokens)
        self.check(tokens)
        self.requests += 1
        self.tokens += tokens
        try:
            yield
        finally:
            self.requests -= 1
            self.tokens -= tokens
            self._ends.append(self._clock())

    def check(self, tokens: int = 0) -> None:
        """Whether one more with so many `tokens` may come in: before a body is read, with none. Raises RefusedError.

        One alone always may: whether it fits at all is another question."""
        if self.requests >= self._bounds.requests:
            message = f"{self.requests} requests are running or waiting, as many as are let in"
            raise RefusedError(429, "queue_full", message, retry_s=self.retry_s)
        if self.requests and self.tokens + tokens > self._bounds.tokens:
            message = f"{self.tokens} tokens of keys and values are promised, {tokens} more than {self._bounds.tokens}"
            raise RefusedError(429, "kv_promised", message, retry_s=self.retry_s)

    @property
    def retry_s(self) -> int:
        """Return seconds until a request will probably have ended: the mean time between the last ends."""
        if len(self._ends) < 2:
            return 1
        between = (self._clock() - self._ends[0]) / (len(self._ends) - 1)
        return min(_LONGEST_RETRY, max(1, ceil(between)))
