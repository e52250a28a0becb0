"""Drives a llama-server: starts it on a free port, waits until it has loaded its model, and continues a prompt."""

import json
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from helmsman.engines.engine_run import EngineRun
from helmsman.gate.processes import last_line
from helmsman.schemas.errors import BadInputError

_HOST = "127.0.0.1"
_POLL_S = 0.05
_LOADING_S = 1800.0
"""Seconds that loading may take: hundreds of gigabytes from a slow disk."""


def run_server(
    program: str, flags: Sequence[str], model: Path, prompt: Sequence[int], output: int, ignore_eos: bool,
    tell: Callable[[int], None],
) -> EngineRun:  # fmt: skip
    """Return one run of a fresh server, after a short one that is not kept; `tell` hears every token.

    Raises BadInputError where the server ends, or answers what is no answer."""
    with _served(program, [*flags, "-m", str(model)]) as port:
        complete(port, prompt[:64], 2, True, lambda _: None)
        return complete(port, prompt, output, ignore_eos, tell)


@contextmanager
def _served(program: str, flags: Sequence[str]) -> Iterator[int]:
    """Yield the port of a server that has loaded its model; it ends with the block."""
    with socket.create_server((_HOST, 0)) as free:
        port: int = free.getsockname()[1]
    command = [program, *flags, "--host", _HOST, "--port", str(port)]
    with (
        TemporaryFile() as said,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said) as process,
    ):
        try:
            _wait(process, port)
            yield port
        except (OSError, HTTPException, ValueError, KeyError) as error:
            process.kill()
            said.seek(0)
            line = last_line(said.read().decode("utf-8", "replace"))[:300]
            problem = f"llama-server fails: {line or error}"
            raise BadInputError(problem, value=program, remedy="see that it serves this file by itself") from None
        finally:
            process.kill()


def _wait(process: "subprocess.Popen[bytes]", port: int) -> None:
    """Wait until the server is ready. Raises OSError where it ends or takes too long."""
    limit = time.monotonic() + _LOADING_S
    while time.monotonic() < limit:
        if process.poll() is not None:
            raise OSError(f"it has ended with code {process.returncode}")
        connection = HTTPConnection(_HOST, port, timeout=10)
        try:
            connection.request("GET", "/health")
            if connection.getresponse().status == 200:
                return
        except (OSError, HTTPException):
            pass
        finally:
            connection.close()
        time.sleep(_POLL_S)
    raise OSError("it does not become ready")


def complete(port: int, prompt: Sequence[int], output: int, ignore_eos: bool, tell: Callable[[int], None]) -> EngineRun:
    """Return a run: tokens as they arrive, the likeliest each time."""
    body = {
        "prompt": list(prompt), "n_predict": output, "temperature": 0.0, "stream": True, "cache_prompt": False,
        "ignore_eos": ignore_eos, "return_tokens": True,
    }  # fmt: skip
    connection = HTTPConnection(_HOST, port)
    tokens, moments = list[int](), list[float]()
    try:
        start = time.monotonic()
        connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        for event in _events(response):
            now = time.monotonic() - start
            for token in event.get("tokens") or ():
                tokens.append(int(token))
                moments.append(now)
                tell(int(token))
    finally:
        connection.close()
    if not tokens:
        raise ValueError("it answers without tokens")
    return EngineRun(tuple(tokens[:output]), tuple(moments[:output]))


def _events(lines: Any) -> Iterator[dict[str, Any]]:
    """Yield the events of a stream. Raises ValueError for what is no JSON."""
    for line in lines:
        text = line.decode("utf-8", "replace").strip()
        if text.startswith("data:") and text != "data: [DONE]":
            yield json.loads(text.removeprefix("data:"))
