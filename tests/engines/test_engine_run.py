"""`helm-run --engine`: a plan through an engine that people have, and its Trace as helm-check reads it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_engine import FAILING, WITHOUT_PACKAGE, fake_python
from plans import make_plan
from shapes import small_model

from helmsman.cli import check as helm_check
from helmsman.cli import run as helm_run
from helmsman.engines import programs
from helmsman.engines.engine_run import EngineRun, engine_trace
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.plan import Schedule
from helmsman.schemas.trace import WHOLE_PASS, Trace, read_trace, write_trace
from helmsman.schemas.workload import Workload

PLAN = make_plan(small_model("llama"), workload=Workload(prompt_tokens=4, output_tokens=8, context=32))

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, model_file: Path, quick: None, capsys: Any) -> Run:
    """run(*arguments) -> (exit code, stdout, stderr) of helm-run with a plan, a file and four tokens."""

    def call(*argv: object) -> tuple[int, str, str]:
        (tmp_path / "plan.json").write_text(PLAN.to_json())
        (tmp_path / "tokens.json").write_text("[1, 2, 3, 4]")
        words = (tmp_path / "plan.json", "--checkpoint", model_file, "--tokens", tmp_path / "tokens.json", *argv)
        return helm_run.main(list(map(str, words))), *capsys.readouterr()

    return call


def test_a_run_becomes_a_trace_that_is_checked(run: Run, tmp_path: Path, capsys: Any) -> None:
    place = tmp_path / "run.parquet"
    python = fake_python(tmp_path)
    code, out, err = run("--engine", "llama.cpp", "--engine-python", python, "--runs", 2, "--trace", place)
    assert code == 0 and "TTFT      500 ms" in out and "llama-cpp-python 9.9" in out and "1.05 MB" in out, err
    assert "note: the plan predicts another engine" in err
    settings = [json.loads(line) for line in (tmp_path / "settings").read_text().splitlines()]
    assert len(settings) == 2, "each run is a fresh process"
    assert settings[0]["context"] == 32 and settings[0]["threads"] == 2 and settings[0]["type_k"] == "f32"
    trace = read_trace(place)
    assert {span.op for span in trace.spans} == {WHOLE_PASS} and trace.info.notes["engine"] == "llama.cpp"
    assert [(span.phase, span.end_s) for span in trace.spans[:3]] == [
        ("prefill", 0.5), ("decode", 0.6), ("decode", 0.7)
    ]  # fmt: skip
    code = helm_check.main([str(tmp_path / "plan.json"), "--measured", str(place), "--json"])
    report = json.loads(capsys.readouterr().out)
    assert code == 4, "a small model is predicted to be faster"
    assert report["step"]["measured"] == pytest.approx(0.1) and report["ttft"]["measured"] == pytest.approx(0.5)
    assert report["engine"] == "llama.cpp" and report["terms"] == []
    assert [part["op"] for part in report["step_difference"]["parts"]] == [WHOLE_PASS]


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        ({"version": WITHOUT_PACKAGE}, 6, "install llama-cpp-python there"),
        ({"load": FAILING}, 5, "llama.cpp fails: no such tensor: blk.0.x"),
    ],
)
def test_an_engine_that_does_not_work(run: Run, tmp_path: Path, script: dict[str, str], code: int, said: str) -> None:
    found = run("--engine", "llama.cpp", "--engine-python", fake_python(tmp_path, **script))
    assert found[0] == code and said in found[2], found[2]


def test_an_engine_that_is_not_there(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "find_spec", lambda name: None)
    monkeypatch.setattr(programs.shutil, "which", lambda name: None)
    code, _, err = run("--engine", "llama.cpp")
    assert code == 6 and "--engine-python" in err and "llama-server on the path" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--depth", "4"), "--depth: is of Helm's own executor"),
        (("--temperature", "1"), "the likeliest tokens"),
        (("--output-tokens", "99"), "no room in the plan's context"),
    ],
)
def test_what_an_engine_does_not_do_is_refused(run: Run, words: tuple[str, ...], said: str) -> None:
    code, _, err = run("--engine", "llama.cpp", *words)
    assert code == 2 and said in err, err


def test_passes_of_a_prompt_share_its_time() -> None:
    plan = PLAN.model_copy(update={"schedule": Schedule(pass_tokens=3)})
    trace = engine_trace(plan, "llama.cpp", 4, [EngineRun((1, 2), (0.4, 0.5))], [], {})
    assert [span.end_s for span in trace.spans] == pytest.approx([0.3, 0.4, 0.5])
    assert [span.phase for span in trace.spans] == ["prefill", "prefill", "decode"]


def test_a_pass_is_whole_or_in_parts(tmp_path: Path) -> None:
    """Never both: a Trace with two spans of a pass, one of which is all of it, is refused."""
    from helmsman.library import check

    trace = engine_trace(PLAN, "llama.cpp", 4, [EngineRun((1, 2), (0.4, 0.5))], [], {})
    torn = Trace(trace.info, [*trace.spans, trace.spans[0]])
    with pytest.raises(BadInputError, match="executed twice in a pass"):
        check(PLAN, torn)
    with (tmp_path / "t.parquet").open("wb") as stream:
        write_trace(trace, stream)
    assert check(PLAN, read_trace(tmp_path / "t.parquet")).runs == 1
