"""`helm-make-checkpoint` as a process: files, exit codes, one line on failure."""

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from helmsman.cli.make_checkpoint import main
from helmsman.executor.weights.checkpoint import Checkpoint
from helmsman.hwdb.load_model import load_model
from helmsman.schemas.made_checkpoint import MadeCheckpoint
from helmsman.schemas.read import parse_document

COMMAND = [sys.executable, "-c", "from helmsman.cli.make_checkpoint import main; raise SystemExit(main())"]


def run(*arguments: str, limit: Callable[[], None] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False, preexec_fn=limit)


def test_a_catalogue_model_is_written_sharded(tmp_path: Path) -> None:
    place = tmp_path / "opt"
    shallow = ("--model", "opt-125m", "--layers", "1", "--shard-size", "50MB", "--seed", "4")
    done = run(*shallow, "-o", str(place), "--json")
    report = json.loads(done.stdout)
    assert json.loads(parse_document(MadeCheckpoint, done.stdout.encode(), "out").to_json()) == report
    assert (done.returncode, done.stderr) == (0, "")
    assert (report["format"], report["seed"], report["directory"]) == ("f16", 4, str(place))
    assert set(report["files"]) == {path.name for path in place.iterdir()}
    assert "model.safetensors.index.json" in report["files"]
    model = load_model("opt-125m").with_layers(1)
    Checkpoint.open(place, model)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--model", "opt-125"], 2, "model: unknown model (got 'opt-125'); did you mean opt-125m"),
        (["--model", "opt-125m", "--layers", "13"], 2, "--layers: opt-125m has 12 (got 13); use 1 to 12"),
        (
            ["--model", "Qwen3.5-27B", "--layers", "3", "--gguf", "--format", "q4_0"],
            2,
            "--layers: Qwen3.5-27B has 64, the first that attends is number 4 (got 3); use 4 to 64",
        ),
        (["--model", "opt-125m", "--seed", "-1"], 2, "--seed: out of range (got -1)"),
        (["--model", "opt-125m", "--shard-size", "much"], 2, "--shard-size: not a quantity (got 'much')"),
        (["--model", "opt-125m", "--shard-size", "0GB"], 2, "--shard-size: out of range (got '0GB')"),
        (["--model", "DeepSeek-V3.2"], 2, "no kernels for the family deepseek_v32"),
    ],
)
def test_mistakes_are_one_line(
    arguments: list[str], code: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "-o", str(tmp_path / "c")]) == code
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["x" * 300, "x/" * 2500 + "y", "x" * 300 + ".gguf"])
def test_a_name_that_no_file_system_takes(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    form = ["--gguf"] if name.endswith(".gguf") else []
    assert main(["--model", "Qwen3-0.6B", *form, "-o", str(tmp_path / name)]) == 2
    errors = capsys.readouterr().err
    assert "cannot be written: File name too long" in errors and errors.count("\n") == 1


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10**6, 10**6))

    done = run("--model", "opt-125m", "--layers", "1", "-o", str(tmp_path / "c"), limit=limit)
    assert done.returncode == 6
    assert "no room on the disk" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not any(tmp_path.iterdir())


def test_an_existing_directory_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("precious")
    assert main(["--model", "opt-125m", "-o", str(tmp_path)]) == 2
    assert "choose a new or empty directory" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
