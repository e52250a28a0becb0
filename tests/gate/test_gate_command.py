"""`helm-check suite`, `accept` and `compare` from arguments to exit codes, files and lines."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from gate_cases import STEADY, MakeCase, set_seconds
from plans import make_plan
from shapes import small_model

from helmsman.cli.check import main
from helmsman.gate import statistics
from helmsman.gate import suite as suite_module
from helmsman.schemas.errors import HardwareUnavailableError
from helmsman.schemas.gate_report import GateReport
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import parse_document

AGAIN = tuple(reversed(STEADY))
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str]) -> Command:
    """check(*arguments) -> (exit code, stdout, stderr)."""

    def call(*arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    return call


@pytest.fixture
def accepted(suite: Path, make_case: MakeCase, check: Command) -> Path:
    """The folder of a case that was measured and accepted."""
    folder = make_case()
    assert check("suite", suite)[0] == 6
    assert check("accept", suite)[0] == 0
    set_seconds(folder, AGAIN)
    return folder


def report_of(out: str) -> GateReport:
    return parse_document(GateReport, out.encode(), "stdout")


def test_a_first_measurement_is_undecided_and_can_be_accepted(suite: Path, make_case: MakeCase, check: Command) -> None:
    make_case()
    code, out, err = check("suite", suite)
    assert code == 6 and "nothing is accepted" in out and err.count("\n") == 1
    code, out, _ = check("accept", suite, "--json")
    row = json.loads(out)["cases"][0]
    assert code == 0 and row["case"] == "tiny" and not row["already"] and row["medians_s"]["step"] > 0
    assert json.loads(check("accept", suite, "--json")[1])["cases"][0]["already"]


def test_an_unchanged_rerun_is_ok(suite: Path, accepted: Path, check: Command) -> None:
    code, out, err = check("suite", suite)
    assert (code, err) == (0, "") and "1 of 1 cases ok" in out


def test_a_slowdown_blocks_until_it_is_accepted(suite: Path, accepted: Path, check: Command) -> None:
    set_seconds(accepted, [1.15 * seconds for seconds in AGAIN])
    for _ in range(2):
        code, out, err = check("--suite", suite, "--json")
        report = report_of(out)
        assert code == 4 and report.blocked == ("tiny",) and report.verdict == "blocked"
        assert err.count("\n") == 1 and "slower" in err and "the machine or the code changed" in err
    assert check("accept", suite)[0] == 0
    set_seconds(accepted, [1.15 * seconds for seconds in STEADY])
    assert check("suite", suite)[0] == 0


def test_a_wrong_constant_in_the_record_is_drift_of_the_model(suite: Path, accepted: Path, check: Command) -> None:
    set_record(accepted, read_factor=0.5)
    code, out, err = check("suite", suite, "--json")
    case = report_of(out).cases[0]
    assert code == 4 and case.verdict == "drift" and case.blocks
    assert "drift of the model or of its record, not of the machine" in err
    assert any("devices.cpu.read was 1e+10, is 5e+09 (-50.0%)" in change for change in case.changes)


def test_noise_is_undecided_with_an_exit_code_of_its_own(suite: Path, accepted: Path, check: Command) -> None:
    noisy = [seconds * factor for seconds, factor in zip(AGAIN, (1.0, 1.5, 0.8, 1.4, 0.9, 1.6, 0.7, 1.3), strict=True)]
    set_seconds(accepted, noisy)
    code, out, err = check("suite", suite)
    assert code == 6 and "undecided" in out and "more runs" in err


def test_every_form_of_a_report(suite: Path, accepted: Path, check: Command, tmp_path: Path) -> None:
    set_seconds(accepted, [1.3 * seconds for seconds in AGAIN])
    xml, summary, document, picture = (tmp_path / name for name in ("g.xml", "g.md", "g.json", "g.svg"))
    forms = ("--junit", xml, "--markdown", summary, "-o", document, "--plot", picture, "--annotations")
    code, out, _ = check("suite", suite, *forms)
    assert code == 4
    test_suite = ElementTree.parse(xml).getroot()[0]
    assert test_suite.attrib["failures"] == "1" and test_suite[0][0].tag == "failure"
    assert "**slower**" in summary.read_text() and "| tiny |" in summary.read_text()
    assert parse_document(GateReport, document.read_bytes(), "file").blocked == ("tiny",)
    assert picture.read_bytes().startswith(b"<?xml")
    assert "\n::error file=" in out and "title=helm-check tiny%3A slower::" in out


def test_two_versions_are_interleaved(suite: Path, make_case: MakeCase, check: Command) -> None:
    """Both sides of this list get the same seconds: A B B A asks for them in turns."""
    seconds = [value for pair in zip(STEADY, AGAIN, strict=True) for value in pair]
    make_case(seconds=seconds)
    code, out, _ = check("suite", suite, "--baseline-python", sys.executable, "--json")
    case = report_of(out).cases[0]
    assert code == 0 and case.baseline is not None and case.baseline.kind == "interpreter"
    figure = case.figures[0]
    assert figure.baseline is not None
    assert figure.now.samples_s + figure.baseline.samples_s == pytest.approx(
        [seconds[place] for place in (1, 2, 5, 6, 9, 10, 13, 14, 0, 3, 4, 7, 8, 11, 12, 15)]
    )


def test_two_results_are_compared(suite: Path, accepted: Path, check: Command, tmp_path: Path) -> None:
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    check("suite", suite, "-o", before)
    set_seconds(accepted, [1.2 * seconds for seconds in STEADY])
    check("suite", suite, "-o", after, "--no-record")
    assert check("compare", before, before)[0] == 0
    code, out, _ = check("compare", before, after)
    assert code == 4 and "SLOWER" in out
    assert check("compare", after, before)[0] == 0, "faster"


def test_results_of_another_machine_and_of_nothing_are_no_comparison(
    suite: Path, accepted: Path, check: Command, tmp_path: Path
) -> None:
    before, elsewhere, failed = (tmp_path / f"{name}.json" for name in ("before", "elsewhere", "failed"))
    check("suite", suite, "-o", before)
    document = json.loads(before.read_text())
    document["cases"][0]["machine"] = "another processor"
    for figure in document["cases"][0]["figures"]:
        figure["now"]["samples_s"] = [2.0 * seconds for seconds in figure["now"]["samples_s"]]
    elsewhere.write_text(json.dumps(document))
    code, out, _ = check("compare", before, elsewhere, "--json")
    assert code == 6 and report_of(out).cases[0].verdict == "undecided"
    (accepted / "print.py").write_text("raise SystemExit('broken')")
    check("suite", suite, "-o", failed, "--no-record")
    code, out, _ = check("compare", failed, failed, "--json")
    assert code != 0 and report_of(out).cases[0].verdict == "failed"


def test_two_plans_are_compared(check: Command, tmp_path: Path) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text(make_plan(small_model("llama"), 2).to_json())
    new.write_text(make_plan(small_model("llama"), 0).to_json())
    code, out, _ = check("compare", old, new, "--json")
    case = report_of(out).cases[0]
    assert code == (4 if case.blocks else 0)
    assert {figure.figure for figure in case.figures} == {"ttft", "step", "request"}
    moved = next(figure.predicted_change for figure in case.figures if figure.figure == "step")
    assert moved is not None and abs(moved) > 0.05, "the whole model on the accelerator takes another time"
    assert check("compare", old, old)[0] == 0


def test_nothing_is_recorded_where_that_is_asked_for(suite: Path, make_case: MakeCase, check: Command) -> None:
    folder = make_case()
    check("suite", suite, "--no-record")
    assert not (folder / "history").exists()


def test_one_case_of_several(suite: Path, make_case: MakeCase, check: Command) -> None:
    make_case("one")
    make_case("two")
    _, out, _ = check("suite", suite, "--case", "two", "--json")
    assert [case.case for case in report_of(out).cases] == ["two"]
    code, _, err = check("suite", suite, "--case", "tow")
    assert code == 2 and "did you mean two?" in err


def test_a_case_that_fails_does_not_keep_the_others_from_being_measured(
    suite: Path, make_case: MakeCase, check: Command
) -> None:
    measure = {"by": "command", "argv": ["{python}", "-S", "-c", "raise SystemExit('no such device')"]}
    make_case("broken", measure=measure)
    make_case("fine")
    code, out, err = check("suite", suite, "--json")
    report = report_of(out)
    assert code == 5 and err.count("\n") == 1 and "no such device" in err and "case.json: measure.argv" in err
    assert [case.verdict for case in report.cases] == ["failed", "undecided"]
    assert len(report.cases[1].figures[0].now.samples_s) == len(STEADY)


COMMANDS: dict[str, tuple[str, int, str]] = {
    "prints nothing": ("pass", 5, "prints no time"),
    "prints a word": ("print('fast')", 5, "prints no time"),
    "prints a negative time": ("print(-1)", 5, "prints no time"),
    "prints an object of words": ('print(\'{"step": "fast"}\')', 5, "prints no time for step"),
    "prints an empty object": ("print('{}')", 5, "prints no figure"),
    "prints a figure without a name": ("print('{\"\": 1}')", 5, "not a name of a figure"),
    "prints an endless time": ("print(1e300)", 5, "prints no time"),
    "says very much": ("raise SystemExit('x' * 10**6)", 5, "the command fails: xxx"),
    "prints broken JSON": ("print('{\"step\": ')", 5, "not valid JSON"),
    "lacks hardware": ("raise SystemExit(6)", 6, "exit code 6"),
}


@pytest.mark.parametrize("what", COMMANDS)
def test_a_command_that_measures_nothing_is_one_line(
    what: str, suite: Path, make_case: MakeCase, check: Command
) -> None:
    program, expected, message = COMMANDS[what]
    make_case(measure={"by": "command", "argv": ["{python}", "-S", "-c", program]}, runs=1)
    code, _, err = check("suite", suite)
    assert code == expected and message in err and err.count("\n") == 1 and "case.json" in err


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown key": ({"planned": 1}, "planned"),
    "no such plan": ({"plan": "other.json"}, "other.json"),
    "an unknown measurement": ({"measure": {"by": "guess"}}, "measure"),
    "no such program": ({"measure": {"by": "command", "argv": ["/no/such/program"]}}, "cannot be started"),
    "no runs": ({"runs": 0}, "runs"),
    "a figure that is not measured": ({"figures": ["ttft"]}, "figures.0"),
    "no such trace": ({"measure": {"by": "trace", "file": "run.parquet"}}, "run.parquet"),
    "no such record": ({"hardware": "record.json"}, "record.json"),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_in_a_case_is_one_line(what: str, suite: Path, make_case: MakeCase, check: Command) -> None:
    fields, named = MISTAKES[what]
    make_case(**fields)
    code, _, err = check("suite", suite)
    assert code == 5 and named in err and err.count("\n") == 1
    assert not list(suite.glob("*/history/*.parquet"))


def test_a_damaged_history_is_refused_before_anything_is_measured(suite: Path, accepted: Path, check: Command) -> None:
    damaged = next((accepted / "history").glob("*.parquet"))
    damaged.write_bytes(damaged.read_bytes() + b" ")
    before = (accepted / "seconds.txt").read_text()
    code, _, err = check("suite", suite)
    assert code == 5 and damaged.name in err and "SHA-256" in err and err.count("\n") == 1
    assert (accepted / "seconds.txt").read_text() == before


def test_what_cannot_be_kept_is_still_reported(
    suite: Path, make_case: MakeCase, check: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> str:
        raise HardwareUnavailableError("no room on the disk", file="history", remedy="free some space")

    monkeypatch.setattr(suite_module, "append", full)
    make_case("one")
    make_case("two")
    code, out, err = check("suite", suite, "--json")
    cases = report_of(out).cases
    assert code == 6 and "no room on the disk" in err and err.count("\n") == 1
    assert [case.verdict for case in cases] == ["failed", "failed"]
    assert all(len(case.figures[0].now.samples_s) == len(STEADY) for case in cases)


def test_a_history_that_cannot_be_written_is_refused_before_anything_is_measured(
    suite: Path, make_case: MakeCase, check: Command
) -> None:
    folder = make_case()
    (folder / "history").write_text("a file where the folder should be")
    before = (folder / "seconds.txt").read_text()
    code, _, err = check("suite", suite)
    assert code == 2 and "history" in err and err.count("\n") == 1
    assert (folder / "seconds.txt").read_text() == before


def test_without_scipy_nothing_is_measured(
    suite: Path, accepted: Path, check: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics, "find_spec", lambda name: None)
    before = (accepted / "seconds.txt").read_text()
    code, _, err = check("suite", suite)
    assert code == 6 and "helmsman[gate]" in err and err.count("\n") == 1
    assert (accepted / "seconds.txt").read_text() == before


def test_folders_without_a_case_are_told(suite: Path, make_case: MakeCase, check: Command) -> None:
    make_case()
    (suite / "checkpoint").mkdir()
    assert "checkpoint: has no case.json" in check("suite", suite)[1]


@pytest.mark.parametrize(
    "arguments",
    [
        ("suite", "{suite}", "--annotations", "--json"),
        ("suite", "{suite}", "--plot", "x.svg"),
        ("suite", "{suite}", "--baseline-python", "/no/python"),
        ("suite",),
    ],
)
def test_arguments_that_make_no_sense(
    arguments: tuple[str, ...], suite: Path, make_case: MakeCase, check: Command
) -> None:
    make_case("one")
    make_case("two")
    code, _, err = check(*(word.format(suite=suite) for word in arguments))
    assert code == 2 and err.count("\n") == 1


def test_nothing_can_be_accepted_before_it_is_measured(suite: Path, make_case: MakeCase, check: Command) -> None:
    make_case()
    code, _, err = check("accept", suite)
    assert code == 5 and "has no measurement" in err


def set_record(folder: Path, read_factor: float) -> None:
    """Let the case be priced by its plan's record, in which the processors read another number of bytes a second."""
    record = parse_document(Plan, (folder / "plan.json").read_bytes(), "plan").hardware

    def changed(device: Any) -> Any:
        figure = device.read
        factors = {name: getattr(figure, name) * read_factor for name in ("value", "p10", "p90")}
        return device.model_copy(update={"read": figure.model_copy(update=factors)})

    devices = tuple(changed(device) if device.kind == "cpu" else device for device in record.devices)
    wrong: Hardware = record.model_copy(update={"devices": devices})
    (folder / "record.json").write_text(wrong.to_json())
    document = json.loads((folder / "case.json").read_text())
    (folder / "case.json").write_text(json.dumps(document | {"hardware": "record.json"}))
