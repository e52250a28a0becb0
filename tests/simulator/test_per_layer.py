"""Layers against the loading of the next ones: the ratios of Gupta & Dwarkadas Table IV."""

from functools import cache

import pytest

from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.planner.cost.model import CostOptions
from helmsman.planner.cost.plan_costs import cost_model
from helmsman.planner.machine import roles
from helmsman.planner.strategies.layerwise_map import PRINTED, LayerwiseMap
from helmsman.planner.strategies.offload.allocation import Percentages
from helmsman.planner.strategies.offload.place import Keeping
from helmsman.planner.strategies.offload.strategy import Allocator, Offloading
from helmsman.planner.strategies.percentages import FlexGenPercentages
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.planner.strategies.weights_on_host import WeightsOnHost
from helmsman.schemas.plan import Plan
from helmsman.schemas.workload import Workload
from helmsman.simulator.per_layer import PassLayers, per_layer
from helmsman.simulator.pricing import median_price

ASKED = Percentages(0, 80, 20)
BASELINE = FlexGenPercentages(ASKED)
HELM = LayerwiseMap(PRINTED["attention"], PRINTED["ffn"], ASKED)


@cache
def planned(allocator: Allocator, batch: int, machine: str, home: str, capped: bool = True) -> Plan:
    work = Workload(prompt_tokens=128, output_tokens=21, batch=batch, context=149)
    frame = Frame(load_model("opt-175b"), roles(load_hardware(machine, None)), work)
    keeping, costs = Keeping(home, compress=True), CostOptions(capped=capped)
    return Offloading(frame, allocator, keeping, costs).decide({"capped": capped}).plan


def layers_of(plan: Plan) -> tuple[PassLayers, PassLayers]:
    costs = cost_model(plan)
    return per_layer(plan, median_price(plan), costs.slowed(), costs.between())


@cache
def ratios(allocator: Allocator, batch: int, machine: str, home: str) -> dict[tuple[str, str], float]:
    """By phase and kind of layer."""
    passes = layers_of(planned(allocator, batch, machine, home))
    return {(each.phase, one.kind): one.ratio for each in passes for one in each.overlaps if one.ratio is not None}


TABLE_IV = [
    # GUPTA-F085.. : attention's compute over the FFN's load, the FFN's over attention's
    (BASELINE, 1, "a100-optane", "optane", 0.36, 1.85),
    (BASELINE, 8, "a100-optane", "optane", 0.36, 1.85),
    (BASELINE, 1, "a100-cxl-fpga", "cxl", 0.10, 0.53),
    (BASELINE, 8, "a100-cxl-fpga", "cxl", 0.10, 0.53),
    (WeightsOnHost(), 8, "a100-optane", "optane", 0.36, 1.39),
    (WeightsOnHost(), 44, "a100-optane", "optane", 0.35, 1.33),
]


@pytest.mark.parametrize(("allocator", "batch", "machine", "home", "attention", "ffn"), TABLE_IV)
def test_ratios_of_decode_steps(allocator, batch, machine, home, attention, ffn):
    """Expansion was fitted to All-CPU at batch 1 alone."""
    found = ratios(allocator, batch, machine, home)
    assert found["decode", "attention"] == pytest.approx(attention, abs=0.03)
    assert found["decode", "ffn"] == pytest.approx(ffn, rel=0.06)


PROMPTS = [
    (BASELINE, 1, "a100-optane", "optane", 0.36, 1.86),
    (BASELINE, 8, "a100-optane", "optane", 0.52, 3.07),
    (BASELINE, 8, "a100-cxl-fpga", "cxl", 0.14, 0.87),
    (WeightsOnHost(), 8, "a100-optane", "optane", 0.51, 2.3),
    (WeightsOnHost(), 44, "a100-optane", "optane", 1.25, 4.82),
]


@pytest.mark.parametrize(("allocator", "batch", "machine", "home", "attention", "ffn"), PROMPTS)
def test_ratios_of_prompts(allocator, batch, machine, home, attention, ffn):
    """GUPTA-F085.. : by shares of the class at 512 tokens and more, prompts of 8 sequences were a fifth too fast."""
    found = ratios(allocator, batch, machine, home)
    assert found["prefill", "attention"] == pytest.approx(attention, rel=0.16)
    assert found["prefill", "ffn"] == pytest.approx(ffn, rel=0.16)


def test_every_layer_is_listed():
    plan = planned(BASELINE, 1, "a100-optane", "optane")
    for each in layers_of(plan):
        assert len(each.layers) == 194
        kinds = [layer.kind for layer in each.layers]
        assert kinds == ["embedding", *(["attention", "ffn"] * 96), "output"]


def test_loads_rise_and_fall_like_a_saw():
    """Fig 7a: FFN layers load more than twice as long as attention, under FlexGen's allocation; HeLM evens it out."""
    for allocator, low, high in ((BASELINE, 2.5, 2.8), (HELM, 0.95, 1.05)):
        plan = planned(allocator, 1, "a100-optane", "optane")
        decode = layers_of(plan)[1]
        loads = {kind: [each.load for each in decode.layers if each.kind == kind] for kind in ("attention", "ffn")}
        assert low < sum(loads["ffn"]) / sum(loads["attention"]) < high


def test_layers_add_up_to_the_pass():
    plan = planned(WeightsOnHost(), 1, "a100-optane", "optane")
    decode = layers_of(plan)[1]
    after = [*(layer.load for layer in decode.layers[1:]), 0.0]
    whole = sum(max(layer.compute, load) for layer, load in zip(decode.layers, after, strict=True))
    assert whole == pytest.approx(plan.predicted.decode.seconds.mid, rel=2e-3)
