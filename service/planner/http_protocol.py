"""HTTP on a connection, as uvicorn speaks it, bounded: heads in bytes, connections in number and in idleness."""

import asyncio
from array import array
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from fcntl import ioctl
from functools import partial
from termios import TIOCOUTQ
from typing import Any

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from helmsman.service.http.idle_connections import IdleConnections
from helmsman.service.http.refusals import RefusedError
from helmsman.service.planner.computing.answer import PROBLEM
from helmsman.service.planner.gateway import ABORT, UNREAD
from helmsman.service.planner.problems import refusal_problem

_MOST_HEAD = 2**16
"""Bytes of a request's line, headers and trailers."""
_MOST_HEADERS = 128
_MOST_READ = 2**14
"""Bytes that are read at a time: with asyncio's 256 KiB, what many connections pour in takes so long that nobody else
is served meanwhile."""
_LOOK_S = 1.0
_LINGER_S = 1.0
"""Seconds for which a connection is kept whose request was answered before it had come."""


class HeadTooLargeError(Exception):
    """Raised while a head is read that is longer than it may be."""


@dataclass(frozen=True, slots=True)
class Doorway:
    """Makes the protocols of connections, at most `most` of them at a time; `idle` knows which have no request."""

    config: Config
    state: ServerState
    most: int
    idle: IdleConnections[Any]

    def __call__(self) -> asyncio.Protocol:
        """Return the protocol of a new connection."""
        return BoundedProtocol(self)


class BoundedProtocol(HttpToolsProtocol):
    """A connection. Beside what uvicorn bounds, which is bodies that nobody reads yet: heads, and connections."""

    def __init__(self, doorway: Doorway) -> None:
        super().__init__(doorway.config, doorway.state, {})
        self._doorway = doorway
        self._head = self._lines = self._size = 0
        self._coming = False

    @property
    def answering(self) -> bool:
        """Return whether a request is being answered, whose limits the application sees to."""
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: Any) -> None:
        """Take a connection, unless there are as many as may be."""
        super().connection_made(transport)
        transport.max_size = _MOST_READ
        if len(self.connections) > self._doorway.most:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take what came; a head that does not end counts."""
        reading_head = self.scope is None or not self.answering
        super().data_received(data)
        self._head = self._head + len(data) if reading_head and not self.answering else 0
        if self._head > _MOST_HEAD and not self.transport.is_closing():
            self.send_400_response("The head of the request is too large.")

    def on_message_begin(self) -> None:
        """Begin a request, which can end its connection."""
        super().on_message_begin()
        self._lines = self._size = 0
        scope: Any = self.scope
        # no method of this object, which has the scope: what holds itself is freed late, and many at once
        scope["extensions"] = {ABORT: self.transport.abort, UNREAD: partial(unread, self.transport)}

    def on_headers_complete(self) -> None:
        """Begin to answer: from now on the connection does not idle."""
        self._doorway.idle.busy(self)
        self._coming = True
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """Go on with the next request, unless the body of this one is still coming: nobody wants it. Who sends it has a
        moment to see the answer."""
        if self._coming and not self.transport.is_closing():
            self.flow.pause_reading()
            self.loop.call_later(_LINGER_S, self.transport.abort)
            return
        super().on_response_complete()

    def on_message_complete(self) -> None:
        """End the body of a request."""
        self._coming = False
        super().on_message_complete()

    def on_url(self, url: bytes) -> None:
        """Take a part of the target. Raises HeadTooLargeError."""
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header, or a trailer. Raises HeadTooLargeError."""
        super().on_header(name, value)
        self._lines += 1
        self._count(len(name) + len(value))

    def send_400_response(self, msg: str) -> None:
        """Answer what is no HTTP, or too much of it, with a problem."""
        refusal = RefusedError(400, "http", msg)
        body = refusal_problem(refusal).to_json().encode()
        head = f"HTTP/1.1 400 Bad Request\r\nContent-Type: {PROBLEM}\r\nContent-Length: {len(body)}\r\n"
        self.transport.write(f"{head}Connection: close\r\n\r\n".encode() + body)
        self.transport.close()

    def _count(self, size: int) -> None:
        self._size += size
        if self._size > _MOST_HEAD or self._lines > _MOST_HEADERS:
            raise HeadTooLargeError


def unread(transport: asyncio.Transport) -> int:
    """Return the bytes that this end, or the system, still holds for the other end; none for one that has left."""
    if transport.is_closing():
        return 0
    held = array("i", [0])
    with suppress(OSError):  # not every system tells
        ioctl(transport.get_extra_info("socket").fileno(), TIOCOUTQ, held)
    return held[0] + transport.get_write_buffer_size()


def close_idle(doorway: Doorway, now: float) -> None:
    """Close connections that have idled for too long at `now`, seconds of a clock, whatever they still have to read."""
    for connection in doorway.idle.overdue(set(doorway.state.connections), lambda one: bool(one.answering), now):
        connection.transport.abort()


async def sweep(doorway: Doorway, told: Callable[[int], None]) -> None:
    """Close connections that idle, and tell how many there are. Runs until it is cancelled."""
    while True:
        await asyncio.sleep(min(_LOOK_S, doorway.idle.idle_s / 2))
        told(len(doorway.state.connections))
        close_idle(doorway, asyncio.get_running_loop().time())
