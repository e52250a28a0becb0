"""Readers that are slow, and those that take nothing."""

import asyncio
import json
import socket
import struct
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from web_service import OPTIONS, QUESTION, WebSite, web_site

from helmsman.service.planner.gateway import _PIECE, UNREAD, _Exchange
from helmsman.service.planner.options import WebOptions

SLOW = {**QUESTION, "model": "Qwen3-8B", "strategy": "optimal"}
"""Takes longer than who asks stays."""


class _Answering:
    """All of a service that an exchange needs to send."""

    options = WebOptions(access=OPTIONS.access, stall_s=0.2)


def sent(seconds: list[float], reading: bool = False) -> list[bytes]:
    """The pieces of a message, each of which is sent after some seconds; `reading`: meanwhile something is taken."""
    unread = iter(range(10**9, 0, -1))
    pieces: list[bytes] = []

    async def send(message: Any) -> None:
        await asyncio.sleep(seconds[len(pieces)])
        pieces.append(message["body"])

    async def run() -> None:
        scope: dict[str, Any] = {"type": "http", "method": "GET", "path": "/", "headers": []}
        if reading:
            scope["extensions"] = {UNREAD: lambda: next(unread)}
        service: Any = _Answering()
        exchange = _Exchange(scope, send, send, service)
        await exchange.send({"type": "http.response.body", "body": bytes(len(seconds) * _PIECE)})

    asyncio.run(run())
    return pieces


def test_a_steady_reader_is_waited_for() -> None:
    """For longer in all than a reader may take nothing; a piece as well, of which something is taken all the time."""
    assert [len(piece) for piece in sent([0.06] * 5)] == [_PIECE] * 5
    assert len(sent([0.5], reading=True)) == 1


def test_who_takes_nothing_is_not() -> None:
    with pytest.raises(TimeoutError):
        sent([0.0, 30.0])


def test_a_slow_reader_of_a_socket_gets_all(tmp_path: Path) -> None:
    """Though what it takes in the time for which it may take nothing is much less than the buffers hold."""
    with web_site(tmp_path, replace(OPTIONS, stall_s=0.15)) as site, socket.socket() as connection:
        file = site.service.page.get("index.html")
        content = bytes(250_000)
        site.service.page._read["index.html"] = replace(file, content=content)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", site.port))
        connection.settimeout(10)
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        received = 0
        while piece := connection.recv(8_000):
            received += len(piece)
            time.sleep(0.02)
    assert received > len(content)


@pytest.mark.parametrize("question", [b'{"model": "none", "hardware": "none"}', json.dumps(SLOW).encode()])
def test_who_leaves_before_the_answer_is_no_mistake(
    site: WebSite, question: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """The socket of the connection is closed by then: what it still holds for the reader is nothing."""
    head = f"POST /v1/plans HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(question)}"
    for _ in range(3):
        with socket.create_connection(("127.0.0.1", site.port)) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.sendall(f"{head}\r\nContent-Type: application/json\r\n\r\n".encode() + question)
            time.sleep(0.005)
    end = time.monotonic() + 30
    while site.service.computations.under_way and time.monotonic() < end:
        time.sleep(0.002)
    assert site.get("/health").status == 200
    assert not [record for record in caplog.records if record.exc_info]
