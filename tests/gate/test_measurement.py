"""Cases measured for real on this machine: by helm-run, by a server, and from a stored Trace."""

import json
import os
import subprocess
import sys
from pathlib import Path
from select import select

import pytest
from plans import make_hardware, make_plan
from quick_probes import quick_probes
from shapes import small_model
from two_cpus import TWO_CPUS

from helmsman.cli.check import main as helm_check
from helmsman.cli.run import main as helm_run
from helmsman.executor.checkpoint.write import write_checkpoint
from helmsman.gate.history import read_history
from helmsman.gate.processes import printed_by
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.gate_report import CaseResult, GateReport
from helmsman.schemas.read import read_document
from helmsman.schemas.workload import Workload

MODEL = small_model("qwen3")
PLAN = make_plan(
    MODEL, 0, workload=Workload(prompt_tokens=8, output_tokens=8, context=96), hardware=make_hardware(vram=64 << 20)
)
RUN = {"by": "run", "checkpoint": "../checkpoint", "repeats": 2}

pytestmark = TWO_CPUS


@pytest.fixture
def case(suite: Path) -> Path:
    write_checkpoint(MODEL, suite / "checkpoint", seed=1)
    folder = suite / "loopback"
    folder.mkdir()
    (folder / "plan.json").write_text(PLAN.to_json())
    return folder


def measured(case: Path, **fields: object) -> tuple[int, CaseResult]:
    """Measure the case; return the exit code and its result."""
    content = {"schema": "helm.gate-case/1", "plan": "plan.json", **fields}
    (case / "case.json").write_text(json.dumps(content))
    document = case.parent / "report.json"
    code = helm_check(["suite", str(case.parent), "-q", "-o", str(document)])
    return code, read_document(GateReport, document).cases[0]


def test_by_helm_run_in_fresh_processes(case: Path) -> None:
    code, result = measured(case, measure=RUN, runs=1, figures=["ttft", "step", "request"])
    assert code == 6 and result.verdict == "undecided"
    figures = {figure.figure: figure.now for figure in result.figures}
    assert list(figures) == ["ttft", "step", "request"]
    for times in figures.values():
        assert len(times.samples_s) == 1 and times.predicted_s and times.simulated_s
    rows = zip(*(figures[name].samples_s for name in ("ttft", "step", "request")), strict=True)
    assert all(request == pytest.approx(ttft + 7 * step) for ttft, step, request in rows)
    assert read_history(case / "history").entries[0].entry.samples["step"] == figures["step"].samples_s


def test_a_checkpoint_that_is_not_there_is_said(case: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, result = measured(case, measure=RUN | {"checkpoint": "../none"}, runs=1)
    err = capsys.readouterr().err
    assert code == 5 and result.verdict == "failed" and result.failure is not None
    assert "neither a directory nor a GGUF file" in err and err.count("\n") == 1


@pytest.mark.nightly
def test_by_a_new_server_each_run(case: Path) -> None:
    measure = {"by": "serve", "checkpoint": "../checkpoint", "requests": "synthetic:n=4,input=8,output=4,rate=50"}
    code, result = measured(case, measure=measure, runs=1)
    assert code == 6, result.reason
    figures = {figure.figure: figure.now for figure in result.figures}
    assert list(figures) == ["tpot", "e2e"]
    assert all(len(times.samples_s) == 1 and times.simulated_s for times in figures.values())


def test_a_server_that_does_not_come_up_is_said(case: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measure = {"by": "serve", "checkpoint": "../none", "requests": "synthetic:n=1,input=8,output=4,rate=50"}
    code, result = measured(case, measure=measure, runs=1)
    err = capsys.readouterr().err
    assert code == 5 and result.verdict == "failed" and "the server fails" in err and err.count("\n") == 1


def test_a_stored_trace_judges_the_model_alone(case: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is kept in the history once, and the same runs are no change, however few they are."""
    quick_probes(monkeypatch.setattr)
    tokens = tmp_path / "tokens.json"
    tokens.write_text(json.dumps([7, 3, 11, 5, 2, 9, 4, 8]))
    paths = (str(case / "plan.json"), "--checkpoint", str(case.parent / "checkpoint"), "--tokens", str(tokens))
    assert helm_run([*paths, "--runs", "2", "--ignore-eos", "--trace", str(case / "run.parquet"), "-q"]) == 0
    measure = {"by": "trace", "file": "run.parquet"}
    assert measured(case, measure=measure)[0] == 6
    assert helm_check(["accept", str(case.parent), "-q"]) == 0
    for _ in range(2):
        code, result = measured(case, measure=measure)
        assert (code, result.verdict) == (0, "ok"), result.reason
    assert len(read_history(case / "history").entries) == 2, "the first and, with another verdict, the second"
    (case / "plan.json").write_text(make_plan(MODEL, 1, workload=PLAN.workload).to_json())
    assert measured(case, measure=measure)[0] == 5, "a Trace of another plan"


def test_a_command_that_takes_too_long_is_ended_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, started = tmp_path / "start.py", tmp_path / "child"
    program.write_text(
        "import pathlib, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)\n"
        "pathlib.Path('child.new').write_text(str(child.pid))\n"
        "pathlib.Path('child.new').rename('child')\n"
        "child.wait()\n"
    )
    wait, children = subprocess.Popen.wait, list[int]()

    def wait_until_started(process: "subprocess.Popen[bytes]", timeout: float | None = None) -> int:
        if timeout is None:
            return wait(process)
        while not started.exists():
            assert process.poll() is None, "the program ended"
        children.append(os.pidfd_open(int(started.read_text())))
        raise subprocess.TimeoutExpired(str(program), timeout)

    monkeypatch.setattr(subprocess.Popen, "wait", wait_until_started)
    with pytest.raises(BadInputError, match="too long"):
        printed_by([sys.executable, str(program)], tmp_path, 2.0, "case.json", "measure")
    assert select(children, [], [], 60.0)[0] == children
    os.close(children[0])
