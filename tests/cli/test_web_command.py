"""helm-web: what it refuses before it listens, what it says when it does, and how it ends."""

import json
import re
import signal
import ssl
from contextlib import ExitStack, closing
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path

import pytest
from benchmarks.planner_clients import WebServer
from web_service import QUESTION

from helmsman.cli.web import build_parser, main


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--port", "99999"], "--port: not a port"),
        (["--jobs", "0"], "--jobs: not a whole number from 1"),
        (["--memory", "100MiB"], "--memory: a process does not begin with so little"),
        (["--jobs", "9999"], "--jobs: must be between 1 and 256"),
        (["--memory", "1"], "--memory: out of range"),
        (["--job-time", "0s"], "--job-time: out of range"),
        (["--host", "0.0.0.0"], "--host: other machines could ask without a key"),
        (["--token-file", "/none"], "cannot be read"),
        (["--tls-key", "x"], "--tls-key: a key without a certificate"),
        (["--allow-anonymous"], "unrecognized argument"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    arguments: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--store", str(tmp_path)]) in (2, 5)
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1
    assert not list(tmp_path.iterdir()), "nothing was touched"


def test_help_tells_every_limit() -> None:
    text = build_parser().format_help()
    for flag in ("--store", "--token-file", "--memory", "--job-time", "--rate", "--points", "--study-points", "--keep"):
        assert flag in text


TLS = Path(__file__).parents[1] / "cases" / "tls"
CHAIN, KEY = TLS / "chain.pem", TLS / "key.pem"
"""A self-signed certificate of localhost that is valid until 2126, and its key, which protects nothing."""


def test_it_serves_over_tls_logs_and_ends(tmp_path: Path) -> None:
    """Answers that are larger than what is sent at once, too; and nobody who speaks without TLS. Servers of
    test_killed_servers.py have none."""
    log = tmp_path / "log"
    with ExitStack() as stack:
        secret = ("--tls-cert", str(CHAIN), "--tls-key", str(KEY))
        server = WebServer(tmp_path / "store", "--jobs", "1", *secret, log=log).wait()
        stack.callback(server.kill)
        assert server.url.startswith("https://")
        trusting = ssl.create_default_context(cafile=str(CHAIN))
        client = stack.enter_context(closing(HTTPSConnection("localhost", server.port, timeout=60, context=trusting)))
        said = {"Content-Type": "application/json", "X-Request-Id": "mine"}
        client.request("POST", "/v1/plans", json.dumps(QUESTION), said)
        answer = client.getresponse()
        assert answer.status == 200 and json.load(answer)["schema"] == "helm.plan-answer/1"
        client.request("GET", "/openapi.json")
        described = client.getresponse().read()
        assert len(described) > 2**16 and json.loads(described)["openapi"] == "3.1.0"
        client.request("GET", "/ready")
        assert json.load(client.getresponse()) == {"schema": "helm.service-health/1", "status": "ok"}
        plain = stack.enter_context(closing(HTTPConnection("localhost", server.port, timeout=60)))
        with pytest.raises((OSError, HTTPException)):
            plain.request("GET", "/health")
            plain.getresponse()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(30) == 0
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    plan = next(line for line in lines if line["id"] == "mine")
    assert (plan["method"], plan["route"], plan["status"], plan["client"]) == ("POST", "/v1/plans", 200, "127.0.0.1")
    assert plan["bytes"] > 10_000 and plan["seconds"] > 0
    assert re.fullmatch(r"[0-9a-f]{32}", next(line for line in lines if line["path"] == "/ready")["id"])
