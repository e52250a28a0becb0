"""Connections without a request: which of them have been so for too long."""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

ConnectionT = TypeVar("ConnectionT")


class IdleConnections(Generic[ConnectionT]):
    """Knows since when each connection has had no request: whoever waits for ever for the rest of a first head, and
    whoever does not read what was buffered when its answer was done."""

    def __init__(self, idle_s: float) -> None:
        self.idle_s = idle_s
        self._since: dict[ConnectionT, float] = {}

    def busy(self, connection: ConnectionT) -> None:
        """Note that a connection has, or had just now, a request."""
        self._since.pop(connection, None)

    def overdue(
        self, connections: Iterable[ConnectionT], is_busy: Callable[[ConnectionT], bool], now: float
    ) -> list[ConnectionT]:
        """Return the connections that have idled for longer than they may at `now`, seconds of a clock."""
        self._since = {
            connection: self._since.get(connection, now) for connection in connections if not is_busy(connection)
        }
        return [connection for connection, since in self._since.items() if now - since > self.idle_s]
