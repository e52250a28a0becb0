"""A prompt continued by llama-server: its stream of tokens, and a server that does not start."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from helmsman.engines.llama_server import complete, run_server
from helmsman.schemas.errors import BadInputError


class _Server(BaseHTTPRequestHandler):
    asked: ClassVar[dict[str, Any]] = {}

    def do_POST(self) -> None:
        _Server.asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()
        for token in (5, 6):
            self.wfile.write(f'data: {{"content": "x", "tokens": [{token}], "stop": false}}\n\n'.encode())
        self.wfile.write(b'data: {"content": "", "tokens": [], "stop": true}\n\n')

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    server = HTTPServer(("127.0.0.1", 0), _Server)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def test_tokens_of_a_stream(port: int) -> None:
    heard: list[int] = []
    run = complete(port, [1, 2, 3], 2, True, heard.append)
    assert run.tokens == (5, 6) and heard == [5, 6] and 0.0 < run.ttft_s <= run.moments[1]
    assert _Server.asked["prompt"] == [1, 2, 3] and _Server.asked["n_predict"] == 2
    assert not _Server.asked["cache_prompt"] and _Server.asked["ignore_eos"]


def test_a_server_that_ends_says_why(tmp_path: Path) -> None:
    program = tmp_path / "llama-server"
    program.write_text("#!/bin/sh\necho 'error: unknown argument: -fa' >&2\nexit 1\n")
    program.chmod(0o755)
    with pytest.raises(BadInputError, match="llama-server fails: error: unknown argument: -fa"):
        run_server(str(program), ["-fa", "on"], tmp_path / "m.gguf", [1], 1, True, lambda _: None)
