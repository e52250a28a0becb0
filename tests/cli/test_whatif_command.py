"""helm-whatif from its options to its files, and what it says of mistakes."""

import json
from pathlib import Path

import pytest

from helmsman.cli.whatif import main
from helmsman.schemas.read import parse_document
from helmsman.schemas.study_report import StudyReport
from helmsman.schemas.study_table import read_rows

QUICK = (
    "--model",
    "Qwen3-0.6B",
    "--hw",
    "rtx4060-laptop",
    "--strategy",
    "cpu-only",
    "--jobs",
    "1",
    "--sensitivity",
    "0",
)


def test_a_study_of_options_is_a_report_a_table_and_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {name: tmp_path / f"study.{name}" for name in ("json", "parquet", "html")}
    written = ("-o", str(files["json"]), "--rows", str(files["parquet"]), "--html", str(files["html"]))
    assert main([*QUICK, "--batch", "1..4", "--json", *written]) == 0
    report = parse_document(StudyReport, capsys.readouterr().out.encode(), "x")
    assert parse_document(StudyReport, files["json"].read_bytes(), "x") == report
    assert tuple(read_rows(files["parquet"])) == report.rows and [row.batch for row in report.rows] == [1, 2, 4]
    assert "rtx4060-laptop" in files["html"].read_text()


def test_a_file_has_its_answers_beside_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = tmp_path / "laptop.yaml"
    study.write_text("models: Qwen3-0.6B\nmachines: rtx4060-laptop\nstrategies: cpu-only\nsensitivity: 0\n")
    assert main([str(study), "--jobs", "1"]) == 0
    first = capsys.readouterr().out
    assert len(list((tmp_path / "laptop.answers").iterdir())) == 1
    assert main([str(study), "--jobs", "1"]) == 0 and capsys.readouterr().out == first
    assert main([str(study), "--jobs", "1", "--batch", "2", "--store", str(tmp_path / "mine")]) == 0
    assert len(list((tmp_path / "mine").iterdir())) == 1


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ((), 2, "no study"),
        (("--model", "Qwen3-0.6B"), 2, "--hw: required"),
        ((*QUICK, "--think", "9s"), 2, "--requests: required"),
        (("--model", "nobody", "--hw", "rtx4060-laptop"), 2, "nobody"),
        (("--model", "Qwen3-0.6B", "--hw", "rtx4060laptop"), 2, "did you mean rtx4060-laptop"),
        ((*QUICK, "--change", "vram=lots"), 2, "--change"),
        ((*QUICK, "--batch", "many"), 5, "batches"),
        ((*QUICK, "--batch", "1..9000/1"), 2, "--yes"),
        ((*QUICK, "--batch", "1..9000/1", "--prompt-tokens", "1..9000/1", "--yes"), 2, "too many questions"),
        ((*QUICK, "--slo", "ttft=soon"), 2, "--slo"),
        ((*QUICK, "--price", "rtx4060-laptop"), 2, "--price"),
        ((*QUICK, "--jobs", "0"), 2, "--jobs"),
        ((*QUICK, "--workers", "ray"), 2, "helmsman[ray]"),
        ((*QUICK, "--format", "q9_k"), 5, "did you mean q6_k, q4_k"),
        ((*QUICK, "--engine", "ray"), 2, "--engine: no engine"),
        ((*QUICK, "--prompt-tokens", "1..1000000000000/1"), 2, "--prompt-tokens: more than 12 digits"),
        ((*QUICK, "--store", "/dev/null/answers"), 2, "/dev/null/answers"),
        (("no-such-study.yaml",), 5, "no-such-study.yaml"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: tuple[str, ...],
    code: int,
    told: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    assert main(["--json", *arguments]) == code
    printed = capsys.readouterr()
    assert told in printed.err and printed.err.count("\n") == 1
    assert json.loads(printed.out)["error"]["message"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("machines: rtx9999", "machines: unknown hardware (got 'rtx9999')"),
        ("models: nobody", "models: unknown model (got 'nobody')"),
        ("changes: bus=1", "changes: not an edit"),
        ("prompt_tokens: 1..1000000000000", "prompt_tokens: more than 12 digits"),
        ("engines: ray", "engines: no engine"),
        ("strategies: ray", "strategies: no such strategy"),
    ],
)
def test_a_mistake_in_a_file_names_the_file_and_its_field(
    line: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = tmp_path / "study.yaml"
    lines = {"models": "models: Qwen3-0.6B", "machines": "machines: rtx4060-laptop", line.partition(":")[0]: line}
    study.write_text("\n".join(lines.values()))
    assert main([str(study)]) == 2
    assert f"{study}: {told}" in capsys.readouterr().err


def test_what_does_not_fit_names_flags(capsys: pytest.CaptureFixture[str]) -> None:
    models = ("--model", "Qwen3-32B", "--model", "Qwen3-14B", "--format", "f16")
    assert main([*models, "--hw", "rtx4060-laptop", "--strategy", "layer-split", "--sensitivity", "0"]) == 0
    parts = capsys.readouterr().out.split("\n\nmachines for ")[1:]
    assert sorted(part.split()[0] for part in parts) == ["Qwen3-14B", "Qwen3-32B"]
    assert all("fits with --format" in " ".join(part.split()) for part in parts)


def test_a_damaged_answer_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "--store", str(tmp_path)]) == 0
    (shard,) = tmp_path.iterdir()
    shard.write_bytes(shard.read_bytes()[:-9])
    capsys.readouterr()
    assert main([*QUICK, "--store", str(tmp_path)]) == 5
    assert str(shard) in capsys.readouterr().err
