"""helm-bench-serve: a table as simulations write it, and what goes wrong in one line."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import inf
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from benchmarks.virtual_engine import VirtualEngine
from http_service import OPTIONS, background

from helmsman.cli import bench_serve
from helmsman.schemas.served_table import FINISHED, read_served
from helmsman.service.http.access import Access
from helmsman.service.http.listening import address, listen

Command = Callable[..., tuple[int, str, str]]
LINE = "synthetic:n=12,input=20,output=10,rate=100"


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """command(*arguments) -> (exit code, stdout, stderr), without warnings that a busy machine causes."""
    monkeypatch.setattr(bench_serve, "DISTURBED", 1.0)
    monkeypatch.setattr(bench_serve, "_LATE_S", inf)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = bench_serve.main([*arguments, "-o", str(tmp_path / "served.parquet")])
        return code, *capsys.readouterr()

    return call


def test_a_table_and_a_report(command: Command, tmp_path: Path) -> None:
    about = {"policy": "neo", "plan_sha256": "a" * 64}
    with background(VirtualEngine(step_s=0.002), about=about) as url:
        code, out, err = command("--url", url + "/", "--requests", LINE, "--seed", "3", "--json")
    assert (code, err) == (0, "")
    report, served = json.loads(out), read_served(tmp_path / "served.parquet")
    assert report["run"]["policy"] == served.info.policy == "neo" and served.info.plan_sha256 == "a" * 64
    assert report["counts"]["finished"] == 12 and (served.status == FINISHED).all()
    assert served.produced.tolist() == served.output_tokens.tolist()
    assert report["latency"]["ttft"]["p50"] >= 0.002 and report["latency"]["tpot"]["p50"] > 0
    assert (served.reused_tokens == served.prompt_tokens // 16 * 16).all() and served.reused_tokens.any()
    assert served.info.notes["sent_late_s"] >= 0


def test_a_busy_server_and_a_late_client_are_said(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_serve, "DISTURBED", -1.0)
    monkeypatch.setattr(bench_serve, "_LATE_S", -1.0)
    with background(VirtualEngine(step_s=0.0)) as url:
        code, _, err = command("--url", url, "--requests", LINE)
    assert code == 0 and "disturbed: others used" in err and "requests were sent up to" in err


def test_the_same_seed_asks_the_same(command: Command, tmp_path: Path) -> None:
    tables = []
    with background(VirtualEngine(step_s=0.0)) as url:
        for seed in ("1", "1", "2"):
            assert command("--url", url, "--requests", LINE, "--seed", seed, "--rate", "1000", "-q")[0] == 0
            tables.append(read_served(tmp_path / "served.parquet"))
    same, other = (np.array_equal(tables[0].arrival_s, table.arrival_s) for table in tables[1:])
    assert same and not other


def test_a_missed_slo_and_refused_requests(command: Command) -> None:
    with background(VirtualEngine(step_s=0.002)) as url:
        code, out, err = command("--url", url, "--requests", LINE, "--slo", "ttft=0.1ms")
        assert code == 4 and "missed" in out and "ttft 100 us" in err
        code, out, err = command("--url", url, "--requests", "synthetic:n=1,input=9000,output=5")
        assert code == 6 and "1 rejected" in out and "are the most here" in err
        code, out, err = command("--url", url, "--requests", LINE, "--words", "--chat", "--plain", "--concurrency", "2")
        assert code == 0 and "12 finished" in out and err == ""


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--chat"], 2, "--chat: a message is no list of token ids"),
        (["--rate", "0"], 2, "--rate: not a rate"),
        (["--rate", "nan"], 2, "--rate: not a rate"),
        (["--concurrency", "0"], 2, "--concurrency: must be between"),
        (["--url", "here"], 2, "--url: not a URL"),
        (["--seed", "-1"], 2, "--seed: must be between"),
        (["--requests", "missing.csv"], 5, "missing.csv"),
        (["--slo", "fast"], 2, "--slo"),
        (["--arrivals", "sometimes"], 2, "unknown arrivals"),
    ],
)
def test_mistakes(command: Command, arguments: list[str], code: int, said: str) -> None:
    found, _, err = command("--requests", LINE, *arguments)
    assert found == code and said in err and err.count("\n") == 1


def test_no_server_answers(command: Command) -> None:
    with listen("127.0.0.1", 0) as listener:
        url = address(listener)
    code, _, err = command("--url", url, "--requests", LINE)
    assert code == 6 and "no server answers" in err and err.count("\n") == 1


def hostile(answer: Callable[[str], bytes]) -> Iterator[str]:
    """The URL of a server that says `answer(path)`, over and over while it is read."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            with suppress(OSError):
                while piece := answer(self.path):
                    self.wfile.write(piece)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    "answer",
    [
        lambda path: b"x" * 10_000,
        lambda path: b"[" * 10_000 if path == "/v1/models" else b"",
        lambda path: b"process_cpu_seconds_total nan\n" * 100 if path == "/metrics" else b"",
        lambda path: b'helm:pass_seconds_total{part="\xff",source="priced"} 1e999\n' if path == "/metrics" else b"",
        lambda path: b"data: {}\n\n",
    ],
    ids=["endless", "nested", "no numbers", "no labels", "endless events"],
)
def test_a_hostile_server_costs_neither_time_nor_memory(
    answer: Callable[[str], bytes], command: Command, tmp_path: Path
) -> None:
    """Nothing was answered: one line, an exit code that is not 0, and a table where requests were sent at all."""
    for url in hostile(answer):
        code, _, err = command("--url", url, "--requests", "synthetic:n=3,input=4,output=4,rate=100", "-q")
    asked = "no request was answered" in err.splitlines()[-1]
    assert code == 6 and (asked or "an answer of more than" in err), err
    assert (tmp_path / "served.parquet").exists() == asked


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_a_load(number: signal.Signals, tmp_path: Path) -> None:
    """Where an exception of a signal's handler would be one of a callback, and lost."""
    code = "import sys; from helmsman.cli.bench_serve import main; sys.exit(main())"
    engine = VirtualEngine(step_s=0.05)
    with background(engine) as url:
        argv = ["--url", url, "--requests", "synthetic:n=400,input=20,output=200,rate=50", "-o", str(tmp_path / "s")]
        process = subprocess.Popen([sys.executable, "-c", code, *argv, "-q"], stderr=subprocess.PIPE, text=True)
        while process.poll() is None and not engine.load().running:
            time.sleep(0.01)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (128 + number, f"helm-bench-serve: ended by {number.name}\n")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("given", ["argument", "environment", "none"])
def test_a_key_is_sent(given: str, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    options = replace(OPTIONS, access=Access(keys=("the-key",)))
    argv = ("--api-key", "the-key") if given == "argument" else ()
    if given == "environment":
        monkeypatch.setenv("HELM_API_KEY", "the-key")
    with background(VirtualEngine(step_s=0.002), options=options) as url:
        code, _, err = command("--url", url, "--requests", LINE, "-q", *argv)
    assert code == (6 if given == "none" else 0), err
    assert ("401" in err) == (given == "none")
