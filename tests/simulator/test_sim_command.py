import json
import subprocess
import sys
from pathlib import Path

import pytest

from helmsman.cli import plan as helm_plan
from helmsman.cli import sim as helm_sim
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import digest, parse_document, read_document
from helmsman.schemas.replay_report import ReplayReport
from helmsman.schemas.trace import read_trace


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A split of a small model, forced by too little memory on the accelerator."""
    path = tmp_path_factory.mktemp("plan") / "plan.json"
    workload = ["--prompt-tokens", "16", "--output-tokens", "8"]
    machine = ["--hw", "rtx4060-laptop", "--vram-avail", "0.7GB", "--strategy", "layer-split"]
    assert helm_plan.main(["--model", "Qwen3-0.6B", *machine, *workload, "-q", "-o", str(path)]) == 0
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    code = helm_sim.main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_simulation_says_what_the_plan_says(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, plan, "--json")
    found, predicted = json.loads(out), read_document(Plan, plan).predicted
    assert json.loads(parse_document(ReplayReport, out.encode(), "out").to_json()) == found
    assert code == 0
    assert found["ttft_s"] == pytest.approx(predicted.ttft.seconds.mid, rel=1e-9)
    assert found["tpot_s"] == pytest.approx(predicted.decode.seconds.mid, rel=1e-3)
    assert found["tpot_s"] == pytest.approx((found["e2e_s"] - found["ttft_s"]) / 7)


def test_replays_start_without_numpy(plan: Path) -> None:
    code = "import sys; from helmsman.cli.sim import main; main([sys.argv[1], '-q']); print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, plan], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_the_same_question_has_the_same_answer(plan: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, plan, "--json") == run(capsys, plan, "--json")


def test_the_table_names_every_figure(plan: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    timeline = tmp_path / "t.json"
    code, out, _ = run(capsys, plan, "--timeline", timeline)
    assert code == 0
    for word in ("TTFT", "TPOT", "tokens/s", "E2E", "busy", "idle", "cpu", "cuda", "h2d", str(timeline)):
        assert word in out


@pytest.mark.parametrize(("steps", "iterations"), [("0", 1), ("3", 4), ("99", 8)])
def test_trace_and_timeline_hold_the_steps_asked_for(
    plan: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, steps: str, iterations: int
) -> None:
    trace, timeline = tmp_path / "s.parquet", tmp_path / "t.json"
    code, out, _ = run(capsys, plan, "--trace", trace, "--timeline", timeline, "--steps", steps, "-q")
    assert (code, out) == (0, "")
    written = read_trace(trace)
    assert written.info.source == "simulated"
    assert written.info.plan_sha256 == digest(read_document(Plan, plan))
    assert {span.iteration for span in written.spans} == set(range(iterations))
    assert json.loads(timeline.read_text())["otherData"]["iterations_written"] == iterations


def test_one_output_token_has_no_tpot(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    single = tmp_path / "one.json"
    question = ["--model", "Qwen3-0.6B", "--hw", "rtx4060-laptop", "--strategy", "layer-split", "--output-tokens", "1"]
    assert helm_plan.main([*question, "-q", "-o", str(single)]) == 0
    assert "has no TPOT" in run(capsys, single)[1]
    assert json.loads(run(capsys, single, "--json")[1])["tpot_s"] is None


def test_the_report_is_written_to_a_file(plan: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _, out, _ = run(capsys, plan, "--json", "-o", tmp_path / "r.json")
    assert (tmp_path / "r.json").read_text() == out


def test_bad_arguments_and_documents_have_their_exit_codes(
    plan: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out, err = run(capsys, plan, "--steps", "-1")
    assert code == 2 and out == "" and err.count("\n") == 1 and "--steps" in err
    broken = tmp_path / "broken.json"
    broken.write_text(plan.read_text().replace('"h2d"', '"x2d"', 1).replace('"cpu"', '"gpu"', 1))
    code, _, err = run(capsys, broken)
    assert code == 5 and err.count("\n") == 1 and str(broken) in err
    code, out, _ = run(capsys, tmp_path / "none.json", "--json")
    assert code == 5 and json.loads(out)["error"]["code"] == "bad-input"
