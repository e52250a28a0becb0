import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from helmsman.cli import check as helm_check
from helmsman.cli import sim as helm_sim
from helmsman.hwdb.machine_line import MachineFacts
from helmsman.schemas.check_report import CheckReport
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import parse_document
from helmsman.schemas.trace import Probe, Trace, write_trace

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def paths(plan: Plan, tmp_path: Path) -> tuple[Path, Path]:
    path = tmp_path / "plan.json"
    path.write_text(plan.to_json())
    return path, tmp_path / "run.parquet"


@pytest.fixture
def command(paths: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> Command:
    """command(trace, *arguments) -> (exit code, stdout, stderr)."""

    def call(trace: Trace, *arguments: str | Path) -> tuple[int, str, str]:
        with paths[1].open("wb") as stream:
            write_trace(trace, stream)
        code = helm_check.main([str(paths[0]), "--measured", str(paths[1]), *map(str, arguments)])
        return code, *capsys.readouterr()

    return call


def test_a_run_as_predicted_passes(run: Callable[..., Trace], command: Command) -> None:
    code, out, err = command(run(runs=2))
    assert (code, err) == (0, "")
    assert "predicted" in out and "simulated" in out and "measured" in out and "within 8.0%" in out


def test_a_slow_run_exits_with_4(run: Callable[..., Trace], command: Command) -> None:
    slow = run(lambda task, run: 1.2, runs=2)
    code, out, err = command(slow)
    assert code == 4 and "+20.0%" in out and err.count("\n") == 1 and "BEYOND" in err
    code, out, err = command(slow, "--json")
    assert code == 4 and err.count("\n") == 1 and json.loads(out)["passed"] is False
    assert command(slow, "--tolerance", "0.25")[0] == 0


def test_a_check_can_be_drawn(run: Callable[..., Trace], command: Command, tmp_path: Path) -> None:
    """Also one that was missed, whose report comes before the error; a name that is no picture's is refused."""
    picture = tmp_path / "check.svg"
    assert command(run(lambda task, run: 1.2, runs=2), "--plot", picture)[0] == 4
    assert picture.read_bytes().startswith(b"<?xml")
    code, _, err = command(run(runs=2), "--plot", tmp_path / "check.txt")
    assert code == 2 and "--plot" in err and not (tmp_path / "check.txt").exists()


def test_the_same_question_has_the_same_answer(run: Callable[..., Trace], command: Command) -> None:
    _, out, _ = answer = command(run(runs=2), "--json")
    assert command(run(runs=2), "--json") == answer
    assert json.loads(parse_document(CheckReport, out.encode(), "out").to_json()) == json.loads(out)


def test_the_simulators_trace_is_accepted(
    run: Callable[..., Trace], command: Command, paths: tuple[Path, Path], tmp_path: Path
) -> None:
    simulated = tmp_path / "s.parquet"
    assert helm_sim.main([str(paths[0]), "--trace", str(simulated), "-q"]) == 0
    code, out, _ = command(run(), "--simulated", simulated, "--json")
    content = json.loads(out)
    assert code == 0
    assert content["step"]["simulated"] == pytest.approx(content["step"]["predicted"], rel=1e-9)


def test_a_trace_of_another_plan_exits_with_5(run: Callable[..., Trace], command: Command) -> None:
    trace = run()
    code, _, err = command(Trace(trace.info.model_copy(update={"plan_sha256": "0" * 64}), trace.spans))
    assert code == 5 and "another plan" in err and "run.parquet" in err and err.count("\n") == 1


def test_a_corrupt_page_exits_with_5(run: Callable[..., Trace], command: Command, paths: tuple[Path, Path]) -> None:
    command(run())
    data = bytearray(paths[1].read_bytes())
    data[len(data) // 3] ^= 1
    paths[1].write_bytes(bytes(data))
    assert helm_check.main([str(paths[0]), "--measured", str(paths[1])]) == 5


@pytest.mark.parametrize("tolerance", ["0", "-1", "nan", "11", "x"])
def test_a_tolerance_must_be_sensible(run: Callable[..., Trace], command: Command, tolerance: str) -> None:
    assert command(run(), "--tolerance", tolerance)[0] == 2


def test_a_trace_of_other_tasks_exits_with_5(run: Callable[..., Trace], command: Command) -> None:
    trace = run()
    code, out, err = command(Trace(trace.info, [replace(span, task=f"x{span.task}") for span in trace.spans]))
    assert (code, out) == (5, "") and err.count("\n") == 1
    assert "run.parquet" in err and "not executed, the first '0/embedding'" in err and "write the Trace again" in err


@pytest.mark.parametrize("name", ["corrections", "l3_blend"])
@pytest.mark.parametrize("value", ["no", 1, 0.0])
def test_an_option_that_is_not_a_switch_exits_with_5(
    run: Callable[..., Trace], plan: Plan, paths: tuple[Path, Path], command: Command, name: str, value: object
) -> None:
    """A string "no" must not count as true."""
    content = json.loads(plan.to_json())
    content["strategy"]["options"][name] = value
    trace = run()
    paths[0].write_text(json.dumps(content))
    code, _, err = command(trace)
    assert code == 5 and f"plan.json: strategy.options.{name}: true or false is expected" in err and repr(value) in err


def test_a_probe_of_no_bandwidth_exits_with_5(run: Callable[..., Trace], command: Command) -> None:
    """1e-300 bytes/s once led to an internal error."""
    slow = Probe.model_construct(what="read", name="cpu", run=0, value=1e-300)
    trace = run()
    code, _, err = command(Trace(trace.info.model_copy(update={"probes": (slow,)}), trace.spans))
    assert code == 5 and "probes.0.value" in err and "1e-300" in err and "internal" not in err


def test_figures_know_their_machine(run: Callable[..., Trace], command: Command) -> None:
    """That of the record, and the one that ran where it is another."""
    trace = run(runs=2)
    assert "machine      " in command(trace)[1] and "ran on" not in command(trace)[1]
    notes = MachineFacts("another", 3, ("avx2",), {1: 1e10}).notes
    elsewhere = replace(trace, info=trace.info.model_copy(update={"notes": {**trace.info.notes, **notes}}))
    line = "another, 3 cores, avx2 kernels; reads 10.00 GB/s with 1 thread"
    assert f"ran on       {line}\n" in command(elsewhere)[1]
    assert json.loads(command(elsewhere, "--json")[1])["ran_on"] == line
