"""`helm-check --engine`: settings in turns, and whether Helm had called which are faster."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_engine import FAILING, LOADED, fake_python

from helmsman.analysis.ask_settings import request_of_plan
from helmsman.cli import check as helm_check
from helmsman.engines.contest import call, verdict_of
from helmsman.engines.contest_text import contest_table
from helmsman.engines.contestants import Contestant, contestants
from helmsman.engines.rounds import ContestShape, Entrant
from helmsman.library import plan as plan_for
from helmsman.schemas.engine_contest import Contender, EngineContest
from helmsman.schemas.plan import Plan
from helmsman.schemas.predicted import Interval
from helmsman.schemas.read import parse_document

QUESTION = {"model": "Qwen3-0.6B", "hardware": "rtx4060-laptop", "engine": "llama.cpp", "options": {"ngl": 10}}
SHAPE = ContestShape(prompt=8, decode=10, steps=10, depth=8)

Check = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_for(QUESTION).plan


@pytest.fixture
def check(plan: Plan, tmp_path: Path, model_file: Path, quick: None, capsys: Any) -> Check:
    """check(interpreter, *arguments) -> (exit code, stdout, stderr)."""

    def run(python: Path, *argv: object) -> tuple[int, str, str]:
        (tmp_path / "plan.json").write_text(plan.to_json())
        words = ("--engine", "llama.cpp", tmp_path / "plan.json", "--checkpoint", model_file, "--engine-python", python)
        return helm_check.main([*map(str, words), "--hw", "rtx4060-laptop", *map(str, argv)]), *capsys.readouterr()

    return run


def test_a_wrong_call_exits_with_4(check: Check, tmp_path: Path) -> None:
    """Ten layers on the GPU are predicted to be slower than all of them, which the default has, and run faster."""
    code, out, err = check(fake_python(tmp_path, '"gpu_layers": 10', 0.5, 0.9), "--json")
    contest = json.loads(out)
    text = contest_table(parse_document(EngineContest, out.encode(), "out"))
    assert "the plan's is faster than the default" in text and "called slower" in text and "WRONG" in text
    assert code == 4 and "calls right" in err and contest["verdict"] == "wrong"
    assert contest["sides"][1]["settings"].endswith("--fit off") and contest["sides"][1]["predicted_s"]
    first = contest["calls"][0]
    assert (first["rival"], first["called"], first["ran"], first["right"]) == ("default", "slower", "faster", False)
    assert [first[end] for end in ("low", "relative", "high")] == pytest.approx([0.8, 0.8, 0.8])
    assert [len(side["request_s"]) for side in contest["sides"]] == [7] * len(contest["sides"])


def test_too_few_runs_are_refused(check: Check, tmp_path: Path) -> None:
    code, _, err = check(fake_python(tmp_path), "--runs", 3)
    assert code == 2 and "--runs" in err and "cannot differ significantly" in err


def test_llama_cpps_own_fit_takes_part(check: Check, tmp_path: Path) -> None:
    """It is told to fit, with its own margin, and predicted where that puts layers: all on the GPU, faster than ten."""
    code, out, _ = check(fake_python(tmp_path, '"fit": 1024', 0.5, 0.9), "--fit", "--json")
    own = json.loads(out)["sides"][1]
    assert own["name"] == "fit" and own["settings"].endswith("--fit on")
    first = json.loads(out)["calls"][0]
    assert code == 0 and [first[name] for name in ("rival", "called", "ran")] == ["fit", "slower", "slower"]


def test_a_build_without_fit_says_so_before_anything_runs(check: Check, tmp_path: Path) -> None:
    code, _, err = check(fake_python(tmp_path, fit="false"), "--fit")
    assert code == 6 and "this build has no --fit (got 'llama.cpp (llama-cpp-python 9.9)')" in err
    assert not (tmp_path / "settings").exists()


def test_a_default_with_which_the_engine_does_not_run_is_left_out(check: Check, tmp_path: Path) -> None:
    """Ten layers are loaded, all of them are not; the runner-up has ten as well."""
    load = f"""case "$2" in *gpu_layers*) {LOADED};; *) {FAILING};; esac"""
    _, out, _ = check(fake_python(tmp_path, load=load), "--json")
    contest = json.loads(out)
    assert [side["name"] for side in contest["sides"]] == ["plan", "runner-up"]
    (absent,) = contest["absent"]
    assert absent["name"] == "default" and "no such tensor" in absent["reason"]
    text = contest_table(parse_document(EngineContest, out.encode(), "out"))
    assert "default left out: the engine does not run with it: llama.cpp fails: no such tensor" in text


def test_a_default_whose_layers_do_not_fit_is_left_out() -> None:
    """14 billion parameters of 8 bits are more than 8 GB; its fit is not left out."""
    plan = plan_for({**QUESTION, "model": "Qwen3-14B", "format": "q8_0"}).plan
    request = request_of_plan(plan)
    sides, absent = contestants(plan, request, "llama.cpp")
    assert [side.name for side in sides] == ["plan", "runner-up"] and "its layers do not fit" in absent[0].reason
    sides, absent = contestants(plan, request, "llama.cpp", "fit")
    assert (
        [side.name for side in sides] == ["plan", "fit", "runner-up"] and not absent and sides[1].predicted is not None
    )


def _entrant(name: Contender, seconds: list[float], predicted: float | None) -> Entrant:
    interval = None if predicted is None else Interval(low=predicted, mid=predicted, high=predicted)
    nobody: Any = None  # calls are judged by seconds that are there: no side runs
    return Entrant(Contestant(name, "llama-server", interval), nobody, [(0.0, one) for one in seconds])


@pytest.mark.parametrize(
    ("seconds", "predicted", "called", "ran", "right"),
    [
        ([1.5, 1.51, 1.52, 1.5, 1.49, 1.5, 1.51], 1.3, "faster", "faster", True),
        ([1.5, 1.51, 1.52, 1.5, 1.49, 1.5, 1.51], 1.0, "same", "faster", False),
        ([1.0, 1.01, 0.99, 1.0, 1.0, 1.01, 0.99], 1.02, "same", "same", True),
        ([1.0, 1.01, 0.99, 1.0, 1.0, 1.01, 0.99], 0.5, "slower", "same", False),
        ([1.0, 1.01, 0.99, 1.0, 1.0, 1.01, 0.99], None, None, "same", None),
    ],
)
def test_a_call_is_right_or_wrong(
    seconds: list[float], predicted: float | None, called: str | None, ran: str, right: bool | None
) -> None:
    own = _entrant("plan", [1.0, 1.01, 0.99, 1.0, 1.01, 0.99, 1.0], 1.0)
    made = call(SHAPE, own, _entrant("default", seconds, predicted))
    assert (made.called, made.ran, made.right) == (called, ran, right)
    assert verdict_of([made], 0.0) == ("wrong" if right is False else "right")
    assert verdict_of([made], 0.5) == "disturbed"
