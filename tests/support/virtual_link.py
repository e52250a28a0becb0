"""A link that copies nothing, on a clock of its own: every copy takes its latency and its bytes over the rate."""

from threading import Lock
from typing import Any


class VirtualLink:
    """Has the face of a `CopyEngine` as far as measuring needs it. `latency`: seconds, `rate`: bytes/s."""

    def __init__(self, rate: float, latency: float) -> None:
        self._rate, self._latency = rate, latency
        self._lock = Lock()
        self._ends = [0.0]

    def submit(self, target: object, to: int, source: object, begin: int, size: int, **_: Any) -> int:
        """The ticket of a copy of `size` bytes."""
        with self._lock:
            self._ends.append(self._ends[-1] + self._latency + size / self._rate)
            return len(self._ends) - 1

    @property
    def copies(self) -> int:
        """So far."""
        return len(self._ends) - 1

    def wait(self, ticket: int) -> tuple[float, float]:
        """When it began and ended."""
        return self._ends[ticket - 1], self._ends[ticket]
