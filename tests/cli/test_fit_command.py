"""helm-fit, and helm-plan's short forms: the best format, other machines, upgrades."""

import csv
import json
from pathlib import Path

import pyarrow.parquet
import pytest

from helmsman.cli.fit import main as fit
from helmsman.cli.plan import main as plan
from helmsman.schemas.fit_report import FitReport
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import parse_document
from helmsman.schemas.study_report import StudyReport

QUICK = ("--hw", "rtx4060-laptop", "--strategy", "cpu-only", "--jobs", "1")
FIT = (*QUICK, "--models", "Qwen3-0.6B", "--formats", "q8_0,Q4_K_M")
PLAN = ("--model", "Qwen3-0.6B", *QUICK)


def test_a_machine_is_asked_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit([*FIT, "--json", "--rows", str(tmp_path / "r.csv"), "-o", str(tmp_path / "r.json")]) == 0
    report = parse_document(FitReport, capsys.readouterr().out.encode(), "x")
    assert parse_document(FitReport, (tmp_path / "r.json").read_bytes(), "x") == report
    with (tmp_path / "r.csv").open() as stream:
        assert [row["format"] for row in csv.DictReader(stream)] == ["q8_0", "q4_k_m"]
    assert fit([*FIT, "--rows", str(tmp_path / "r.parquet")]) == 0
    bits = pyarrow.parquet.read_table(tmp_path / "r.parquet").column("bits").to_pylist()
    assert bits == [row.bits for row in report.rows]
    printed = capsys.readouterr().out
    assert "what it can run for chat, 1024 + 256 tokens" in printed and "rule of thumb" in printed


def test_an_engine_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("--hw", "rtx4060-laptop", "--engine", "llama.cpp", "--jobs", "1")
    assert fit([*asked, "--models", "Qwen3-0.6B", "--formats", "q8_0", "--option", "build_era=2025"]) == 0
    assert "what it can run through llama.cpp for chat" in capsys.readouterr().out
    assert fit([*asked, "--option", "build_era"]) == 2 and "--option" in capsys.readouterr().err
    best = ("--model", "Qwen3-0.6B", *asked, "--build-era", "2025")
    assert plan([*best, "--format", "q8_0", "--upgrade", "gpu=RTX 4090", "--json"]) == 0
    report = parse_document(StudyReport, capsys.readouterr().out.encode(), "x")
    assert {(row.engine, row.strategy, row.options) for row in report.rows} == {
        ("llama.cpp", "llama-cpp", "build_era=2025")
    }
    assert plan([*best, "--format", "best", "--json"]) == 0
    assert parse_document(FitReport, capsys.readouterr().out.encode(), "x").engine == "llama.cpp"


def test_a_machine_on_which_nothing_fits(capsys: pytest.CaptureFixture[str]) -> None:
    assert fit([*QUICK, "--models", "Llama-3.1-405B", "--formats", "q8_0"]) == 3
    printed = capsys.readouterr()
    assert "does not fit" in printed.out and "nothing fits" in printed.err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--models", ","), "--models"),
        (("--models", "nobody"), "unknown model"),
        (("--formats", "UD-Q4_K_XL"), "GGUF file itself"),
        (("--formats", "q9"), "no such format"),
        (("--contexts", "many"), "not a number of tokens"),
        (("--floor", "-3"), "--floor"),
        (("--for", "fun"), "--for"),
        (("--jobs", "0"), "--jobs"),
    ],
)
def test_a_mistake_is_one_line(arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit(["--json", *FIT, *arguments]) == 2
    printed = capsys.readouterr()
    assert told in printed.err and printed.err.count("\n") == 1
    assert json.loads(printed.out)["error"]["code"] == "usage"


def test_the_best_format_is_planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On slow processors the most precise one that is fast enough; the table is told, the plan written."""
    written = tmp_path / "plan.json"
    assert plan([*PLAN, "--format", "best", "--floor", "40", "-o", str(written)]) == 0
    printed = capsys.readouterr().out
    assert "<- best" in printed and "too slow" in printed and "in short" in printed
    made = parse_document(Plan, written.read_bytes(), "x")
    assert plan([*PLAN, "--format", "best", "--floor", "40", "--json"]) == 0
    report = parse_document(FitReport, capsys.readouterr().out.encode(), "x")
    row = report.rows[report.best[0]]
    assert row.meets_floor and row.settings == made.label
    assert row.loss is not None
    better = [other for other in report.rows if other.loss is not None and other.loss < row.loss]
    assert better and all(other.decode_rate is not None and other.decode_rate < 40 for other in better)


def test_a_floor_that_nothing_reaches_is_a_missed_target(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan([*PLAN, "--format", "best", "--floor", "100000"]) == 4
    printed = capsys.readouterr()
    assert "too slow" in printed.out and "--floor" in printed.err
    assert plan(["--model", "Llama-3.1-405B", *QUICK, "--format", "best"]) == 3


def test_a_purpose_says_lengths(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan([*PLAN, "--format", "q8_0", "--for", "code", "--json"]) == 0
    workload = json.loads(capsys.readouterr().out)["workload"]
    assert (workload["prompt_tokens"], workload["output_tokens"]) == (8192, 512)
    assert plan([*PLAN, "--format", "q8_0", "--for=code", "--prompt-tokens", "64", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["workload"]["prompt_tokens"] == 64


def test_upgrades_are_a_study(capsys: pytest.CaptureFixture[str]) -> None:
    prices = ("--price", "dram_bw=x2=100", "--price", "ram=x2=60")
    assert plan([*PLAN, "--upgrade", "dram_bw=x2", "--upgrade", "ram=x2", *prices, "--json"]) == 0
    report = parse_document(StudyReport, capsys.readouterr().out.encode(), "x")
    assert [row.change for row in report.rows] == ["as it is", "dram_bw=x2", "ram=x2"]
    assert report.upgrades[0].change == "dram_bw=x2" and report.upgrades[0].price == 100
    assert plan([*PLAN, "--upgrade", "dram_bw=x2", *prices[:2]]) == 0
    assert "buy first    dram_bw=x2: " in capsys.readouterr().out


def test_machines_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert plan([*PLAN, "--compare-hw", "rtx3060-5600x, ryzen7950x-cpu"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("rtx4060-laptop", "rtx3060-5600x", "ryzen7950x-cpu", "buy first"))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--format", "best", "--strategy", "all"), "--strategy all"),
        (("--upgrade", "--max-context"), "--max-context"),
        (("--upgrade", "gpu=nothing"), "no GPU of the catalogue"),
        (("--upgrade", "gpu=Apple M1 8-core"), "name a card"),
        (("--compare-hw", "nobody"), "nobody"),
        (("--price", "x=1"), "--compare-hw"),
        (("--floor", "3"), "--format best"),
        (("--format", "best", "--batch", "max"), "--batch"),
        (("--format", "UD-Q4_K_XL"), "GGUF file itself"),
    ],
)
def test_what_does_not_go_together_is_told(
    arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plan([*PLAN, *arguments]) == 2
    assert told in capsys.readouterr().err
