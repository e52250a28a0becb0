"""Cases of the gate that are measured through an engine which people have."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_engine import fake_python

from helmsman.cli import run as helm_run
from helmsman.gate import measurement
from helmsman.gate.cases import read_case
from helmsman.gate.expectation import expectation_of
from helmsman.library import plan as plan_for
from helmsman.schemas.errors import BadInputError, HelmError

QUESTION = {"model": "Qwen3-0.6B", "hardware": "rtx4060-laptop", "prompt_tokens": 8, "output_tokens": 3, "context": 32}
MEASURE = {"by": "engine", "engine": "llama.cpp", "checkpoint": "../m.gguf", "python": "../engine-python"}


@pytest.fixture
def folder(tmp_path: Path, model_file: Path) -> Path:
    place = tmp_path / "case"
    place.mkdir()
    content = {"schema": "helm.gate-case/1", "plan": "plan.json", "measure": MEASURE, "runs": 2}
    (place / "case.json").write_text(json.dumps(content))
    (place / "plan.json").write_text(plan_for({**QUESTION, "engine": "llama.cpp"}).plan.to_json())
    return place


@pytest.fixture
def in_process(quick: None, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Run `helm-run` of a process in this one."""

    def printed(argv: Sequence[str], *_: object) -> str:
        assert helm_run.main(list(argv[3:])) == 0, capsys.readouterr().err
        return str(capsys.readouterr().out)

    monkeypatch.setattr(measurement, "printed_by", printed)


def test_an_engine_is_measured(folder: Path, tmp_path: Path, in_process: None) -> None:
    """The engine answers after 0.5, 0.6 and 0.7 s, started anew for each run with the plan's settings and prompt."""
    case = read_case(folder)
    made = measurement.measure(case, {"candidate": str(fake_python(tmp_path))})
    assert made.sides["candidate"] == {"step": pytest.approx((0.1, 0.1)), "request": pytest.approx((0.7, 0.7))}
    settings = [json.loads(line) for line in (tmp_path / "settings").read_text().splitlines()]
    assert len(settings) == 2 and settings[0]["context"] == 32 and settings[0]["gpu_layers"]
    assert expectation_of(case).predicted["step"] < 0.1


def test_an_engine_is_not_measured_for_a_plan_of_ours(folder: Path) -> None:
    (folder / "plan.json").write_text(plan_for(QUESTION).plan.to_json())
    with pytest.raises(BadInputError, match="not priced as llama.cpp runs it") as error:
        read_case(folder)
    assert error.value.field == "measure.engine" and isinstance(error.value, HelmError)
