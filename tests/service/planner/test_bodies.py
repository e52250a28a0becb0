"""Bodies, heads and readers that mean harm: refused within bounds, and forgotten."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from web_service import OPTIONS, QUESTION, WebSite, web_site

from helmsman.service.http.bodies import BodyLimits, HeldBodies
from helmsman.service.http.refusals import RefusedError

HEAD = "POST /v1/plans HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
SMALL = replace(OPTIONS, bodies=BodyLimits(body=5000, together=12_000, client=12_000, seconds=0.2), idle_s=0.3,
                stall_s=0.3)  # fmt: skip


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebSite]:
    with web_site(Path(tmp_path_factory.mktemp("small")), SMALL) as running:
        yield running


@contextmanager
def connected(site: WebSite, sent: bytes = b"") -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", site.port), timeout=30) as connection:
        connection.sendall(sent)
        yield connection


def first_line(connection: socket.socket) -> bytes:
    """The first line that comes; nothing where the connection ends."""
    received = b""
    try:
        while b"\r\n" not in received and (piece := connection.recv(4096)):
            received += piece
    except ConnectionError:
        return received
    return received.partition(b"\r\n")[0]


def test_a_body_is_refused_by_its_length_before_it_comes(small: WebSite) -> None:
    with connected(small, f"{HEAD}Content-Length: 100000000\r\n\r\n".encode()) as connection:
        assert b" 413 " in first_line(connection)


def test_a_body_of_unknown_length_is_refused_as_it_comes(small: WebSite) -> None:
    with connected(small, f"{HEAD}Transfer-Encoding: chunked\r\n\r\n".encode()) as connection:
        connection.sendall(b"1800\r\n" + b" " * 0x1800 + b"\r\n")
        assert b" 413 " in first_line(connection)
    assert small.service.bodies.held == 0


def test_a_body_that_trickles_is_not_waited_for(small: WebSite) -> None:
    with connected(small, f"{HEAD}Content-Length: 100\r\n\r\n{{".encode()) as connection:
        assert b" 408 " in first_line(connection)


def test_bodies_of_one_client_are_bounded_together(small: WebSite) -> None:
    sent = f"{HEAD}Content-Length: 4900\r\n\r\n".encode() + b" " * 4800
    with connected(small, sent) as one, connected(small, sent) as other, connected(small, sent) as last:
        statuses = {first_line(connection).split()[1] for connection in (one, other, last)}
    assert statuses == {b"408", b"429"}
    assert small.service.bodies.held == 0


def test_what_waits_counts_with_what_comes() -> None:
    bodies = HeldBodies(BodyLimits(body=10, together=40, client=20))
    with bodies.hold("me", 10), bodies.hold("me", 10):
        with pytest.raises(RefusedError, match="too many large requests"), bodies.hold("me", 1):
            pass
        assert bodies.held == 20
    assert bodies.held == 0


def test_a_compressed_body_is_not_taken(small: WebSite) -> None:
    assert small.post("/v1/plans", b"x", Content_Encoding="gzip").status == 415


def test_a_head_that_never_ends_is_not_waited_for(small: WebSite) -> None:
    for sent in (b"", b"POST /v1/pl", HEAD.encode()):
        with connected(small, sent) as connection:
            assert first_line(connection) == b""


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 70_000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: a\r\n" * 200 + b"\r\n",
        HEAD.encode() + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n" + b"X: a\r\n" * 200 + b"\r\n",
        b"no HTTP at all\r\n\r\n",
        b"GET \xff HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_what_is_no_request_is_refused(small: WebSite, sent: bytes) -> None:
    with connected(small, sent) as connection:
        assert b" 400 " in first_line(connection)


def test_an_endless_head_is_cut(small: WebSite) -> None:
    with connected(small, b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ") as connection:
        try:
            for _ in range(64):
                connection.sendall(b"a" * 2**14)
            line = first_line(connection)
        except ConnectionError:
            line = b""
    assert line == b"" or b" 400 " in line


def test_who_reads_nothing_is_left(small: WebSite) -> None:
    """Many answers for one connection, none of which is read."""
    body = b'{"model": "Qwen3-0.6B", "hardware": "rtx4060-laptop", "strategy": "layer-split"}'
    assert small.post("/v1/plans", QUESTION).status == 200
    request = f"{HEAD}Content-Length: {len(body)}\r\n\r\n".encode() + body
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", small.port))
        connection.settimeout(30)
        with pytest.raises(ConnectionError):
            while True:
                connection.sendall(request)
                time.sleep(0.001)
    assert small.get("/health").status == 200


def test_there_are_only_so_many_connections(tmp_path: Path) -> None:
    with web_site(tmp_path, replace(OPTIONS, connections=3)) as site:
        with connected(site), connected(site), connected(site), connected(site) as one_more:
            assert first_line(one_more) == b""
        end = time.monotonic() + 30
        while time.monotonic() < end:
            try:
                assert site.get("/health").status == 200
                return
            except ConnectionError:
                time.sleep(0.01)
        raise AssertionError("nobody is let in any more")
