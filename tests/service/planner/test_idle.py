"""Connections that idle are closed, and those that are used are not."""

import asyncio
import gc
from contextlib import suppress
from typing import Any
from weakref import ref

from uvicorn.config import Config
from uvicorn.server import ServerState

from helmsman.service.http.idle_connections import IdleConnections
from helmsman.service.planner.http_protocol import Doorway, close_idle


def test_who_asks_now_and_then_does_not_idle() -> None:
    idle = IdleConnections[str](10.0)
    for moment in range(0, 100, 5):
        idle.busy("used")
        overdue = idle.overdue({"used", "silent"}, lambda connection: False, float(moment))
        assert overdue == (["silent"] if moment > 10 else [])


def test_who_is_answered_does_not_idle() -> None:
    idle = IdleConnections[str](10.0)
    assert not idle.overdue({"one"}, lambda connection: False, 0.0)
    assert not idle.overdue({"one"}, lambda connection: True, 50.0)
    assert not idle.overdue({"one"}, lambda connection: False, 51.0)
    assert idle.overdue({"one"}, lambda connection: False, 62.0) == ["one"]


async def answered(scope: Any, receive: Any, send: Any) -> None:
    """An application that answers everything with nothing."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


def test_a_connection_that_is_used_is_kept_and_then_closed() -> None:
    """For longer than one may idle, by a clock that stands still but where the test moves it."""

    async def run() -> None:
        config = Config(answered, lifespan="off", log_config=None)
        config.load()
        doorway = Doorway(config, ServerState(), 10, IdleConnections(10.0))
        server = await asyncio.get_running_loop().create_server(doorway, "127.0.0.1", 0)
        async with server, asyncio.timeout(30):
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            for now in range(0, 50, 8):
                writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
                close_idle(doorway, float(now))
            close_idle(doorway, 58.5)
            with suppress(ConnectionError):  # it was ended, not closed: whatever was unread is gone
                assert await reader.read() == b""
            writer.close()

    asyncio.run(run())


def test_a_connection_that_ended_leaves_nothing_to_collect() -> None:
    """Thousands that hold themselves would be freed at once one day, while everybody waits."""

    async def run() -> None:
        config = Config(answered, lifespan="off", log_config=None)
        config.load()
        doorway = Doorway(config, ServerState(), 10, IdleConnections(10.0))
        server = await asyncio.get_running_loop().create_server(doorway, "127.0.0.1", 0)
        async with server, asyncio.timeout(30):
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            (connection,) = map(ref, doorway.state.connections)
            writer.close()
            while doorway.state.connections:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.001)
            assert connection() is None

    gc.disable()
    try:
        asyncio.run(run())
    finally:
        gc.enable()
