"""helm-web in a process of its own, and plain HTTP clients of it."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

TICK = os.sysconf("SC_CLK_TCK")


class ServerProcess(Protocol):
    """A process of helm-web that can be signalled and waited for, as `subprocess.Popen` and copies are."""

    pid: int

    @property
    def stdout(self) -> IO[str] | None:
        """Return the stream of what it prints."""

    def send_signal(self, number: int, /) -> None:
        """Send a signal."""

    def wait(self, timeout: float | None = None) -> int:
        """Return its status once it has ended. Raises TimeoutExpired."""


class WebServer:
    """helm-web with a store; `port` 0: any that is free."""

    def __init__(self, store: Path, *arguments: str, port: int = 0, log: Path | None = None) -> None:
        words = ["--store", str(store), "--port", str(port), "--json", *(arguments or ("-q",))]
        with (Path(os.devnull) if log is None else log).open("ab") as stderr:
            self.process = self._started(words, stderr)
        self.url, self.port = "", 0
        self.recovered = 0

    def _started(self, arguments: Sequence[str], stderr: IO[bytes]) -> ServerProcess:
        """Return the command, started."""
        command = [sys.executable, "-c", "from helmsman.cli.web import main; raise SystemExit(main())", *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)

    def wait(self) -> "WebServer":
        """Return when it listens. Raises SystemExit where it ends instead."""
        assert self.process.stdout is not None
        text = ""
        for line in self.process.stdout:
            text += line
            if line.startswith("}"):
                ready = json.loads(text)
                self.url, self.recovered = ready["url"], ready["recovered"]
                self.port = int(self.url.rpartition(":")[2])
                return self
        raise SystemExit(f"helm-web ended: {text or self.process.wait()}")

    def tree(self) -> list[int]:
        """Return the process and all that it started."""
        return [self.process.pid, *_children(self.process.pid)]

    def resident(self) -> dict[str, float]:
        """Return MiB of memory that the server, and all of its processes together, have for themselves."""
        sizes = [_private(pid) for pid in self.tree()]
        return {"server": sizes[0] / 2**20, "all": sum(sizes) / 2**20}

    def kill(self) -> None:
        """End it at once."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._close()

    def stop(self) -> float:
        """End it as it should be; returns the seconds until it has."""
        begin = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.kill()
        self._close()
        return time.monotonic() - begin

    def _close(self) -> None:
        if self.process.stdout is not None:
            self.process.stdout.close()


def _children(pid: int) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            for child in (thread / "children").read_text().split():
                yield int(child)
                yield from _children(int(child))


def _private(pid: int) -> int:
    """Return bytes of a process that no other shares."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))
    return 0


@dataclass(frozen=True, slots=True)
class Reply:
    """A response."""

    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the document."""
        return json.loads(self.body)


class Client:
    """One connection that is kept."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, content: Any = None, **headers: str) -> Reply:
        """Return the response to a request. Raises OSError, EOFError."""
        body = b"" if content is None else json.dumps(content).encode()
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        said = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": str(len(body)), **headers}
        head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in said.items())
        try:
            writer.write(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
            return await _reply(reader)
        except (OSError, EOFError):
            self.close()
            raise

    def close(self) -> None:
        """Leave."""
        if self._streams is not None:
            self._streams[1].transport.abort()
            self._streams = None


async def _reply(reader: asyncio.StreamReader) -> Reply:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:] if line)}
    if "content-length" in headers:
        body = await reader.readexactly(int(headers["content-length"]))
    else:
        body = b"".join([piece async for piece in _chunks(reader)]) if "transfer-encoding" in headers else b""
    return Reply(int(lines[0].split()[1]), headers, body)


async def _chunks(reader: asyncio.StreamReader) -> Any:
    while size := int(await reader.readline(), 16):
        yield await reader.readexactly(size)
        await reader.readline()
    await reader.readline()


def quantile(values: Iterable[float], share: float) -> float:
    """Return the value that `share` of them do not exceed."""
    ascending = sorted(values)
    return ascending[min(len(ascending) - 1, int(share * len(ascending)))] if ascending else float("nan")
