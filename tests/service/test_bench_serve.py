"""helm-bench-serve: a table as simulations write it, and what goes wrong in one line."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from benchmarks.virtual_engine import VirtualEngine
from http_service import background

from helmsman.cli import bench_serve
from helmsman.schemas.served import FINISHED, read_served
from helmsman.service.server import address, listen

Command = Callable[..., tuple[int, str, str]]
LINE = "synthetic:n=12,input=20,output=10,rate=100"


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """command(*arguments) -> (exit code, stdout, stderr)."""

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
        assert code == 0 and "1 rejected" in out and "are the most here" in err
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
