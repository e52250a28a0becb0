"""Cases whose plan was made for another engine: priced as it runs them, never measured as our own."""

import json
from pathlib import Path

import pytest

import helmsman
from helmsman.gate.cases import read_case
from helmsman.schemas.errors import BadInputError

QUESTION = {"model": "Qwen3-0.6B", "hardware": "rtx4060-laptop", "format": "q8_0", "engine": "llama.cpp"}
COMMAND = {"by": "command", "argv": ["llama-bench"]}


def case(folder: Path, **fields: object) -> Path:
    (folder / "plan.json").write_text(helmsman.plan({**QUESTION, "options": {"build_era": "2024"}}).plan.to_json())
    (folder / "other.json").write_text(helmsman.load_hardware("rtx4090-7950x").to_json())
    content = {"schema": "helm.gate-case/1", "plan": "plan.json", "measure": COMMAND, **fields}
    (folder / "case.json").write_text(json.dumps(content))
    return folder


def test_a_record_prices_the_plan_as_its_engine_runs_it(tmp_path: Path) -> None:
    there = read_case(case(tmp_path, hardware="other.json"))
    planned = helmsman.plan({**QUESTION, "hardware": "rtx4090-7950x", "options": {"build_era": "2024"}}).plan
    assert there.priced.hardware == planned.hardware and there.priced.machine is not None
    assert there.priced.machine.name == "rtx4090-7950x" and there.plan.hardware != planned.hardware
    assert read_case(case(tmp_path)).priced == there.plan


def test_our_own_executor_is_not_measured_for_an_engine(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="priced as llama-cpp runs it") as error:
        read_case(case(tmp_path, measure={"by": "run", "checkpoint": "x"}))
    assert error.value.field == "measure.by" and error.value.remedy
