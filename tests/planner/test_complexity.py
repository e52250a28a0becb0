"""Plans by how much they ask of whoever runs them."""

import pytest
from plans import make_plan
from shapes import small_model
from splits import split_placement

from helmsman.planner.prediction.complexity import Complexity, complexity
from helmsman.schemas.plan import ComputeRule, Part, Residence, Select

MODEL = small_model("qwen3")


@pytest.mark.parametrize(("on_cpu", "kind"), [(None, Complexity.ONE_DEVICE), (0, Complexity.ONE_DEVICE)])
def test_one_device(on_cpu, kind):
    assert complexity(make_plan(MODEL, on_cpu)) == kind


@pytest.mark.parametrize("on_cpu", [1, 2, 3, 4])
def test_whole_layers_on_either_device(on_cpu):
    assert complexity(make_plan(MODEL, on_cpu)) == Complexity.LAYERS


def test_operations_of_a_layer_apart():
    assert complexity(split_placement(MODEL, 2, 5)) == Complexity.OPERATIONS


def test_weights_that_stream():
    plan = make_plan(MODEL, 0)
    at_home = (Residence(select=Select(names="down*"), memory="dram", format="f32"), *plan.residence)
    assert complexity(plan.model_copy(update={"residence": at_home})) == Complexity.OPERATIONS


def test_a_matrix_that_devices_share():
    plan = make_plan(MODEL, 0)
    part = Select(names="down*", part=Part(axis="rows", start=0, stop=48))
    there = (Residence(select=part, memory="dram", format="f32"), *plan.residence)
    done = (ComputeRule(select=part, device="cpu"), *plan.compute)
    shared = plan.model_copy(update={"residence": there, "compute": done})
    assert complexity(shared) == Complexity.MATRICES


def test_what_a_prompt_asks_counts_too():
    plan = make_plan(MODEL, None)
    prompts = (ComputeRule(select=Select(names="down"), device="cpu", phase="prefill"), *plan.compute)
    assert complexity(plan.model_copy(update={"compute": prompts})) > Complexity.ONE_DEVICE


def test_the_order_is_from_simple_to_intricate():
    assert sorted(Complexity) == [
        Complexity.ONE_DEVICE,
        Complexity.LAYERS,
        Complexity.OPERATIONS,
        Complexity.MATRICES,
    ]
    assert all(each.words for each in Complexity)
