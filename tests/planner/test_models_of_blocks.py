"""Plans of models that are not made of equal dense blocks: what is beside blocks has a place, and all fits."""

import pytest

from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.library import compare, plan
from helmsman.lowering.lower import lower
from helmsman.planner.cost.model import CostModel
from helmsman.planner.machine import roles
from helmsman.planner.memory.usage import memory_use, shortages
from helmsman.planner.prediction.predict import mean_step, pass_seconds
from helmsman.planner.strategies.layer_rules import SplitQuestion
from helmsman.planner.strategies.layer_split import LayerSplit
from helmsman.schemas.model import Model
from helmsman.schemas.read import parse_document
from helmsman.schemas.workload import Workload

MODELS = (
    "gpt-oss-20b",
    "gemma-3-4b-it",
    "gemma-4-E2B-it",
    "Qwen3.5-35B-A3B",
    "DeepSeek-V2-Lite",
    "DeepSeek-V4-Flash",
    "Kimi-Linear-48B-A3B-Instruct",
    "LFM2-8B-A1B",
    "Falcon-H1-0.5B",
    "opt-350m",
)
WORK = Workload(prompt_tokens=64, output_tokens=32, context=96)


def split(name: str) -> LayerSplit:
    machine = roles(load_hardware("a4000-7950x", None).model_copy(update={"tables": ()}))
    return LayerSplit(load_model(name), machine, WORK, SplitQuestion("q4_0"), CostModel(machine.hardware))


@pytest.mark.parametrize("name", MODELS)
def test_the_closed_form_of_memory_is_that_of_the_placement(name: str) -> None:
    asked = split(name)
    for k in (0, 1, asked.model.units // 2, asked.model.units - 1, asked.model.units):
        assert dict(asked.shortage(k)) == shortages(memory_use(asked.placement(k))), k


@pytest.mark.parametrize("name", MODELS)
def test_the_closed_form_of_steps_is_the_prediction(name: str) -> None:
    asked = split(name)
    for k in (0, asked.model.units // 2, asked.model.units):
        predicted = pass_seconds(lower(asked.placement(k), mean_step(WORK)), asked.costs)
        assert asked.seconds(k, mean_step(WORK)) == pytest.approx(predicted, rel=0.04), k


@pytest.mark.parametrize("name", ["gemma-4-E2B-it", "opt-350m", "Falcon-H1-0.5B"])
def test_the_default_plan_fits_and_is_read_again(name: str) -> None:
    made = plan({"model": name, "hardware": "rtx4060-laptop", "prompt_tokens": 32, "output_tokens": 8}).plan
    assert not shortages(memory_use(made))
    again = parse_document(type(made), made.to_json().encode(), "plan.json")
    assert again == made and again.model == load_model(name)


def test_strategies_that_do_not_know_a_model_say_so_in_the_table() -> None:
    question = {"model": "gpt-oss-20b", "hardware": "a4000-7950x", "format": "q4_0", "prompt_tokens": 8}
    rows = {row.strategy: row for row in compare(question, ["layer-split", "op-split"]).rows}
    assert rows["layer-split"].verdict == "fits"
    assert rows["op-split"].verdict == "does-not-apply"
    assert (
        rows["op-split"].reason == "op-split plans models of equal dense blocks, and gpt-oss-20b has 2 kinds of blocks"
    )


@pytest.mark.parametrize("name", ["Falcon-H1-0.5B", "DeepSeek-V4-Flash", "gemma-4-E4B-it"])
def test_documents_of_models_are_read_again(name: str) -> None:
    model = load_model(name)
    assert parse_document(Model, model.to_json().encode(), "model.json") == model


def test_a_model_that_lacks_facts_is_planned_and_marked() -> None:
    decision = plan({"model": "granite-4.0-h-1b", "hardware": "rtx4060-laptop", "strategy": "cpu-only"})
    [marked] = [warning for warning in decision.warnings if warning.startswith("run: refused")]
    assert "embedding_multiplier, residual_multiplier" in marked
