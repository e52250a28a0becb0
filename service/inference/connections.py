"""Connections of an aiohttp server without a request: those that stay so for too long are closed, whatever they still
have to read."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from helmsman.service.http.idle_connections import IdleConnections

_LOOK_S = 1.0
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Connections:
    """Knows when each connection last had a request.

    aiohttp bounds the head of a request in bytes and the time that a connection is kept for another, but waits for ever
    for the rest of a first head, and for who reads what was buffered when a handler returned."""

    def __init__(self, idle_s: float) -> None:
        self._idle = IdleConnections[Any](idle_s)
        self._busy: set[Any] = set()

    @property
    def middleware(self) -> Any:
        """Return the middleware that notes which connections have a request."""

        @web.middleware
        async def note(request: web.Request, handler: _Handler) -> web.StreamResponse:
            self._busy.add(request.protocol)
            try:
                return await handler(request)
            finally:
                self._busy.discard(request.protocol)
                self._idle.busy(request.protocol)

        return note

    async def watch(self, server: web.Server) -> None:
        """Close what idles. Runs until it is cancelled."""
        while True:
            await asyncio.sleep(min(_LOOK_S, self._idle.idle_s / 2))
            self.sweep(server, asyncio.get_running_loop().time())

    def sweep(self, server: web.Server, now: float) -> None:
        """Close what idles at `now`, seconds of the loop's clock."""
        for connection in self._idle.overdue(server.connections, self._busy.__contains__, now):
            if connection.transport is not None:
                connection.transport.abort()
