"""Operation splits that may divide more, or compress and store as they like, are never slower by their prediction."""

from dataclasses import replace
from functools import cache
from itertools import product

import pytest
from daily import one_in

from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.ops import op_extent
from helmsman.lowering.placement import batches_together
from helmsman.planner.cost.model import CostOptions
from helmsman.planner.decision import Decision
from helmsman.planner.machine import roles
from helmsman.planner.prediction.objective import objective_seconds
from helmsman.planner.strategies.op_split.split_rules import SplitRules
from helmsman.planner.strategies.op_split.strategy import OpSplit
from helmsman.planner.strategies.streaming.division import divisible
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.planner.words.explain import explain
from helmsman.schemas.figures import Figure
from helmsman.schemas.objective import OBJECTIVES
from helmsman.schemas.workload import Workload

NVME = ("nvme0", "nvme1", "nvme2", "nvme3")

nightly = pytest.mark.nightly


@cache
def question(
    batches: int, batch: int, parts: int = 1, compress: str = "none", storage: bool = False, layers: int = 12
) -> OpSplit:
    """Decode steps of some layers of OPT-30B on the paper's machine, 512 + 128 tokens."""
    work = Workload(prompt_tokens=512, output_tokens=128, batch=batch, batches=batches, context=640)
    model = load_model("opt-30b").with_layers(layers)
    frame = Frame(model, roles(load_hardware("a4000-7950x", None)), work)
    ops = [op for op in divisible(frame.model) if op_extent(frame.model, op)[1] >= parts]
    options = SplitRules(dict.fromkeys(ops, parts) if parts > 1 else {}, compress, NVME if storage else ())
    return OpSplit(frame, options, CostOptions(), "latency")


@cache
def decided(batches: int, batch: int, parts: int = 1, compress: str = "none", storage: bool = False) -> Decision:
    return question(batches, batch, parts, compress, storage).decide({})


@pytest.mark.parametrize(
    ("batches", "batch", "compress", "divisions"),
    one_in(
        2,
        [
            (4, 25, "all", (1, 2)),
            (2, 25, "none", (1, 2)),
            *(
                pytest.param(batches, batch, compress, (1, 2, 4, 8), marks=nightly)
                for batches, batch, compress in ((4, 25, "all"), (4, 10, "all"), (2, 25, "none"))
            ),
        ],
    ),
)
def test_dividing_more_is_never_slower(batches, batch, compress, divisions):
    """With parts the closed form of several batches chose splits that were up to 26 % slower than whole operations."""
    took = [decided(batches, batch, parts, compress).seconds for parts in divisions]
    assert took == sorted(took, reverse=True)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("batches", "batch", "parts", "storage"),
    [
        (1, 25, 1, False),
        *(pytest.param(*each, marks=nightly) for each in ((1, 25, 1, True), (2, 25, 1, True), (1, 25, 4, True))),
    ],
)
def test_a_free_choice_is_never_slower_than_one_made_before(batches, batch, parts, storage):
    """Of what is compressed and, with `storage`, of what is stored."""
    best = {stored: decided(batches, batch, parts, "best", stored).seconds for stored in {False, storage}}
    assert best[storage] <= best[False]
    for stored, compress in product(best, ("none", "weights", "kv", "all")):
        assert best[stored] <= decided(batches, batch, parts, compress, stored).seconds


@pytest.mark.parametrize("parts", [2, pytest.param(8, marks=nightly)])
@pytest.mark.parametrize(("batches", "batch", "compress"), [(4, 25, "all"), (2, 25, "none"), (1, 50, "all")])
def test_no_runner_up_is_faster_than_the_plan(batches, batch, compress, parts):
    decision = decided(batches, batch, parts, compress)
    assert decision.seconds == pytest.approx(decision.plan.predicted.decode.seconds.mid, rel=1e-9)
    assert decision.runner_ups and all(other >= decision.seconds for _, other in decision.runner_ups)


@pytest.mark.parametrize(
    ("batches", "objective"),
    one_in(
        2,
        [
            (1, "latency"),
            (1, "ttft"),
            (2, "request"),
            (2, "throughput"),
            *(pytest.param(*each, marks=nightly) for each in product((1, 2), OBJECTIVES)),
        ],
    ),
)
def test_printed_formulas_price_the_plan_and_its_runner_ups_alike(batches, objective):
    """Their seconds were of decode steps without prompts, beside a request as it is predicted; of prompts they were
    0."""
    asked = question(batches, 25)
    asked = replace(asked, options=replace(asked.options, printed=True), objective=objective)
    decision = asked.decide({})
    plan, best = decision.plan, asked.finalists[0]
    assert plan.predicted.decode.seconds.mid == asked.frame.model.layers * best.split.seconds
    assert plan.predicted.decode.lower_bound <= plan.predicted.decode.seconds.mid
    together = batches_together(plan)
    own = objective_seconds(plan.predicted, plan.workload, together, objective).mid
    assert decision.seconds == pytest.approx(own, rel=1e-9) == best.seconds
    assert decision.runner_ups
    assert all(other >= decision.seconds * (1 - 1e-9) for _, other in decision.runner_ups)
    text = explain(decision, exact=True)
    assert "runner-up" in text and "(-" not in text


def test_ends_are_where_the_passes_of_the_objective_are_faster():
    """An accelerator that reads slowly: steps are faster with the output on the host, prompts are not."""
    machine = load_hardware("t4-xeon6130", None)
    devices = [
        device.model_copy(update={"read": slower(device.read, 2.5)}) if device.kind == "cuda" else device
        for device in machine.devices
    ]
    machine = machine.model_copy(update={"devices": tuple(devices)})
    work = Workload(prompt_tokens=1024, output_tokens=32, batch=4, context=1056)
    frame = Frame(load_model("opt-125m"), roles(machine), work)
    homes = {}
    for objective in OBJECTIVES:
        asked = OpSplit(frame, SplitRules(), CostOptions(), objective)
        homes[objective] = asked.layout(asked.every_split.at(0, len(asked.units))).ends
    assert homes["latency"] == "host" and homes["ttft"] == "accelerator"


def slower(figure: Figure, times: float) -> Figure:
    return figure.model_copy(update={end: getattr(figure, end) / times for end in ("value", "p10", "p90")})


@pytest.mark.parametrize(("batches", "batch", "parts", "compress"), one_in(2, [(4, 25, 8, "all"), (2, 25, 4, "none")]))
def test_batches_are_followed_as_they_are_lowered(batches, batch, parts, compress):
    """Seconds per layer by the clock against whole steps: the cycles of the closed form were up to 30 % off."""
    layers = 48
    asked = question(batches, batch, parts, compress, layers=layers)
    for split in asked.fitting.ranked(6):
        assert asked._whole(split) == pytest.approx(layers * split.seconds, rel=0.04), split


@pytest.mark.nightly
def test_batches_that_wait_for_each_transfer_are_followed_too():
    asked = question(2, 25)
    serial = replace(asked, frame=replace(asked.frame, overlap="none"))
    assert serial.decide({}).seconds > asked.decide({}).seconds
