"""Every kind of bad client at once, what `/health` takes meanwhile, and how much memory the service has."""

import asyncio
import json
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from benchmarks.planner_clients import WebServer, quantile

_QUESTION = {"model": "Qwen3-0.6B", "hardware": "rtx4060-laptop", "strategy": "layer-split"}
_HEAD = "{} {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
_MIB = 2**20

Way = Callable[[asyncio.StreamReader, asyncio.StreamWriter, random.Random], Awaitable[None]]


def _head(method: str, path: str, length: int | None = None) -> bytes:
    size = "" if length is None else f"Content-Length: {length}\r\n"
    return (_HEAD.format(method, path) + size).encode() + (b"\r\n" if length is not None else b"")


async def _poured(writer: asyncio.StreamWriter, piece: bytes, count: int) -> None:
    for _ in range(count):
        writer.write(piece)
        await writer.drain()


async def large(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Send 100 MB, announced."""
    writer.write(_head("POST", "/v1/plans", 10**8))
    await _poured(writer, b" " * 2**16, 10**8 // 2**16)
    await reader.readline()


async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Send 100 MB in chunks."""
    writer.write(_head("POST", "/v1/studies") + b"Transfer-Encoding: chunked\r\n\r\n")
    await _poured(writer, b"10000\r\n" + b" " * 2**16 + b"\r\n", 10**8 // 2**16)
    await reader.readline()


async def full(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Send as much as a body may have."""
    writer.write(_head("POST", "/v1/plans", 4 * _MIB) + b'{"model": "')
    await _poured(writer, b"x" * 2**16, 64)
    await reader.readline()


async def deep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Send brackets, 100,000 deep or as deep as a small body can be."""
    body = chance.choice((b"[", b'{"a":')) * chance.choice((100_000, 5000))
    writer.write(_head("POST", chance.choice(("/v1/plans", "/v1/studies", "/v1/models")), len(body)) + body)
    await reader.readline()


async def unending_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Send a head that does not end, a header now and then."""
    writer.write(_HEAD.format("GET", "/v1/models").encode())
    for number in range(100):
        writer.write(f"X-{number}: {number}\r\n".encode())
        await asyncio.sleep(0.5)


async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Send a body a byte at a time."""
    writer.write(_head("POST", "/v1/plans", _MIB))
    for _ in range(100):
        writer.write(b" ")
        await asyncio.sleep(0.5)


async def unread(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Ask again and again, and read nothing."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    writer.transport.pause_reading()
    body = json.dumps(_QUESTION).encode()
    for _ in range(200):
        if writer.transport.is_closing():
            return
        writer.write(_head("POST", "/v1/plans", len(body)) + body + _head("GET", "/openapi.json", 0))
        await asyncio.sleep(0.1)


async def sweep(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Ask for fresh plans, as fast as they come."""
    for _ in range(50):
        question = {**_QUESTION, "prompt_tokens": chance.randrange(16, 30_000)}
        body = json.dumps(question).encode()
        writer.write(_head("POST", "/v1/plans", len(body)) + body)
        await _answer(reader)


async def long(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Ask for what takes long, and leave."""
    question = {**_QUESTION, "model": "Qwen3-8B", "strategy": "best", "prompt_tokens": chance.randrange(16, 9000)}
    body = json.dumps(question).encode()
    writer.write(_head("POST", "/v1/plans", len(body)) + body)
    await asyncio.sleep(chance.random() * 2)


async def memory(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Ask for simulations of millions of requests, and cancel none."""
    serving = {"requests": "synthetic:n=3000000,input=1000,output=1000,rate=1000", "seed": chance.randrange(10**6)}
    body = json.dumps({"question": _QUESTION, "serving": serving}).encode()
    writer.write(_head("POST", "/v1/simulations", len(body)) + body)
    await _answer(reader)
    await asyncio.sleep(1.0)


async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Send noise."""
    writer.write(chance.randbytes(chance.randrange(1, 3000)) + b"\r\n\r\n")
    await reader.read()


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, chance: random.Random) -> None:
    """Say nothing."""
    await reader.read()


async def _answer(reader: asyncio.StreamReader) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = next((line for line in head.split(b"\r\n") if line.startswith(b"content-length:")), b":0")
    await reader.readexactly(int(length.partition(b":")[2]))


WAYS: tuple[tuple[float, Way], ...] = (
    (0.06, large), (0.06, endless), (0.04, full), (0.06, deep), (0.16, unending_head), (0.16, trickle), (0.16, unread),
    (0.04, sweep), (0.04, long), (0.02, memory), (0.08, garbage), (0.12, silent),
)  # fmt: skip
"""Bad clients, with the share of the connections that each kind has."""


async def _crowd(port: int, seconds: float, connections: int, seed: int) -> dict[str, int]:
    """Hold so many connections; returns what they met."""
    met, end = Counter[str](), time.monotonic() + seconds

    async def again(way: Way, number: int) -> None:
        chance = random.Random(seed * 10_000 + number)
        await asyncio.sleep(chance.random())
        while (left := end - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(left):
                    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**14)
                    try:
                        await way(reader, writer, chance)
                        met[f"{way.__name__}: done"] += 1
                    finally:
                        writer.transport.abort()
            except TimeoutError:
                met[f"{way.__name__}: until the end"] += 1
            except (OSError, EOFError, asyncio.LimitOverrunError) as error:
                met[f"{way.__name__}: {type(error).__name__}"] += 1
                await asyncio.sleep(0.05)

    ways = [way for share, way in WAYS for _ in range(max(1, round(share * connections)))]
    await asyncio.gather(*(again(way, number) for number, way in enumerate(ways)))
    return dict(sorted(met.items()))


def _probe(port: int, seconds: float) -> None:
    """In a process of its own, that no client delays: print the seconds that each `/health` took."""
    took, end = [], time.monotonic() + seconds
    while (begin := time.monotonic()) < end:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert b" 200 " in connection.recv(4096)
        took.append(time.monotonic() - begin)
        time.sleep(max(0.0, 0.02 - took[-1]))
    print(json.dumps(took))


def attack(seconds: float, connections: int) -> None:
    """Print what `/health` takes, and the memory, alone and under attack."""
    with tempfile.TemporaryDirectory(prefix="helm-web-") as folder:
        server = WebServer(Path(folder), "-q", "--memory", "1GiB").wait()
        try:
            for name, crowd in (("alone", 0), ("under attack", connections), ("after it", 0)):
                health, peak, met = _round(server, seconds if crowd else min(10.0, seconds), crowd)
                told = ", ".join(f"p{100 * share:g} {1e3 * quantile(health, share):.1f}" for share in (0.5, 0.99, 1.0))
                sizes = ", ".join(f"{name} {size:.0f}" for name, size in peak.items())
                print(f"{name}: /health ms {told} ({len(health)} times); most MiB of its own: {sizes}", flush=True)
                if met:
                    print(f"  {met}")
        finally:
            print(f"ended within {server.stop():.2f} s")


def _round(server: WebServer, seconds: float, crowd: int) -> tuple[list[float], dict[str, float], dict[str, int]]:
    this = [sys.executable, "-m", "benchmarks.planner_attacks"]
    probe = subprocess.Popen([*this, "probe", str(server.port), str(seconds)], stdout=subprocess.PIPE)
    more = [*this, "crowd", str(server.port), str(seconds), str(crowd)]
    bad = subprocess.Popen(more, stdout=subprocess.PIPE) if crowd else None
    peak: dict[str, float] = {}
    while probe.poll() is None:
        peak = {name: max(size, peak.get(name, 0.0)) for name, size in server.resident().items()}
        time.sleep(0.5)
    health = json.loads(probe.communicate()[0] or b"[]")
    met = json.loads(bad.communicate()[0] or b"{}") if bad else {}
    return health, peak, met


if __name__ == "__main__":
    role, *rest = sys.argv[1:]
    if role == "probe":
        _probe(int(rest[0]), float(rest[1]))
    else:
        with suppress(KeyboardInterrupt):
            print(json.dumps(asyncio.run(_crowd(int(rest[0]), float(rest[1]), int(rest[2]), 1))))
