"""Plans of GGUF files: every tensor in the format of the file."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from family_models import family_model
from plans import make_hardware

from helmsman.cli.plan import build_parser, main, plan_request
from helmsman.executor.checkpoint.gguf_write import write_gguf
from helmsman.lowering.rules import homes
from helmsman.lowering.tensors import tensors
from helmsman.planner import choice
from helmsman.planner.choice import MOST_ABOVE_SIMPLE, Contender, choose
from helmsman.planner.decide import decide
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import parse_document

MODEL = family_model("qwen2")


def planned(capsys: pytest.CaptureFixture[str], tmp_path: Path, *argv: str) -> Any:
    (tmp_path / "hw.json").write_text(make_hardware().to_json())
    code = main([*argv, "--hw", str(tmp_path / "hw.json"), "--json"])
    captured = capsys.readouterr()
    return parse_document(Plan, captured.out.encode(), "out") if code == 0 else json.loads(captured.out)["error"]


def kept(plan: Plan) -> dict[tuple[str, int | None], str]:
    return {
        (each.name, each.layer): homes(plan, each)[0].rule.format
        for each in tensors(plan.model)
        if len(each.shape) == 2
    }


@pytest.mark.parametrize("strategy", ["layer-split", pytest.param("optimal", marks=pytest.mark.nightly)])
def test_a_mixed_file_is_planned_tensor_by_tensor(
    strategy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "m.gguf"
    write_gguf(MODEL, place, fmt="q4_k_m")
    plan = planned(capsys, tmp_path, "--model", str(place), "--strategy", strategy)
    found = kept(plan)
    assert {key for key, fmt in found.items() if fmt == "q6_k"} == {
        ("head.weight", None),
        ("v.weight", 2),
        ("v.weight", 3),
    }
    assert {key[0] for key, fmt in found.items() if fmt == "q8_0"} == {"down.weight"}  # 640 columns
    assert found["q.weight", 2] == "q4_k" and len(plan.residence) < 12


def test_a_mixed_file_is_planned_in_the_format_that_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "m.gguf"
    write_gguf(MODEL, place, fmt="q4_k_m")
    plan = planned(capsys, tmp_path, "--model", str(place), "--strategy", "layer-split")
    weights = sum(use.weights for use in plan.predicted.memory)
    whole = planned(capsys, tmp_path, "--model", str(place), "--strategy", "layer-split", "--format", "q8_0")
    assert weights < sum(use.weights for use in whole.predicted.memory)
    assert set(kept(whole).values()) == {"q8_0"}


@pytest.mark.nightly
def test_the_recommended_plan_is_chosen_once_among_strategies_with_all_formats(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not once for each format that a strategy may begin with: a strategy has a plan from some of them only."""
    contenders: list[Sequence[Contender]] = []
    monkeypatch.setattr(choice, "choose", lambda each, risk: contenders.append(each) or choose(each, risk))
    write_gguf(MODEL, tmp_path / "m.gguf", fmt="q4_k_m")
    plan = planned(capsys, tmp_path, "--model", str(tmp_path / "m.gguf"))
    [pool] = contenders
    plans = [each.decision.plan for each in pool]
    assert {each.strategy.name for each in plans} == {"layer-split", "llama-cpp", "optimal"}
    assert all(kept(each) == kept(plan) and each.predicted.request is not None for each in plans)
    simple = [each.seconds.mid for each in pool if each.simple]
    assert plan.predicted.request is not None
    assert plan.predicted.request.seconds.mid <= MOST_ABOVE_SIMPLE * min(simple)


def test_one_prompt_of_batches_in_turns_is_what_a_decision_on_a_mixed_file_counts(tmp_path: Path) -> None:
    """As decisions on other files do: the seconds were those of all turns, beside a plan of one."""
    write_gguf(MODEL, tmp_path / "m.gguf", fmt="q4_k_m")
    (tmp_path / "hw.json").write_text(make_hardware().to_json())
    words = (
        f"--model {tmp_path / 'm.gguf'} --hw {tmp_path / 'hw.json'} --strategy layer-split --objective ttft --batches 4"
    )
    decision = decide(plan_request(build_parser("layer-split").parse_args(words.split())))
    assert decision.plan.schedule.order == "token-major"
    assert decision.seconds == pytest.approx(decision.plan.predicted.ttft.seconds.mid, rel=1e-9)


def test_a_file_of_one_format_is_planned_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_gguf(MODEL, tmp_path / "m.gguf", fmt="q4_0")
    plan = planned(capsys, tmp_path, "--model", str(tmp_path / "m.gguf"))
    assert set(kept(plan).values()) == {"q4_0"} and {rule.format for rule in plan.residence} == {"q4_0"}


def test_native_formats_are_of_gguf_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert set(kept(planned(capsys, tmp_path, "--model", "Qwen3-0.6B")).values()) == {"f16"}
    error = planned(capsys, tmp_path, "--model", "Qwen3-0.6B", "--format", "native")
    assert error["code"] == "usage" and error["field"] == "--format"
