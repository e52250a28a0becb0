"""Prompts: FlexGen waits while new keys and values leave, the paper's own runtime hides it (PARK-54, 71)."""

from collections.abc import Callable

import pytest
from plain_clock import makespan

from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.graph import Task
from helmsman.lowering.lower import lower
from helmsman.lowering.placement import Placement
from helmsman.planner.cost.model import CostModel, CostOptions
from helmsman.planner.machine import roles
from helmsman.planner.strategies.flexgen import FlexGen
from helmsman.planner.strategies.streaming.place import Frame, Layout, place
from helmsman.scheduler.iteration import prefill
from helmsman.schemas.workload import Workload
from helmsman.simulator.replay import replay

HIDDEN, PROMPT = 7168, 512
WIDTH = 2 + 2
"""Bytes of a key and a value in f16."""


def placements(layers: int, batch: int, batches: int) -> tuple[dict[str, Placement], CostModel]:
    """FlexGen's plan and one that streams everything without its barriers, for OPT-30B."""
    work = Workload(prompt_tokens=PROMPT, output_tokens=32, batch=batch, batches=batches, context=544)
    model = load_model("opt-30b").with_layers(layers)
    frame = Frame(model, roles(load_hardware("a4000-7950x", None)), work)
    schedule, units = FlexGen(frame, False, False, CostOptions()), frame.units({})
    return {"flexgen": schedule.placement, "op-split": place(frame, Layout(units, 0, len(units)))}, schedule.costs


def median(costs: CostModel) -> Callable[[Task], float]:
    return lambda task: costs.price(task).mid


def per_layer(batch: int, batches: int, ideal: bool = True) -> dict[str, tuple[float, float]]:
    """By plan: seconds that one more layer adds to a prompt, and seconds of its operations."""
    ends, work = dict[str, list[float]](), dict[str, float]()
    for layers in (3, 5):
        placed, costs = placements(layers, batch, batches)
        for name, each in placed.items():
            graph, price = lower(each, prefill(each.workload, batches)), median(costs)
            run = makespan(graph, price) if ideal else replay(graph, price, each.hardware).makespan
            ends.setdefault(name, []).append(run)
            work[name] = sum(price(task) for task in graph.tasks if task.layer == 1 and task.resource == "cuda")
    return {name: ((ends[name][1] - ends[name][0]) / 2, work[name]) for name in ends}


@pytest.mark.parametrize(("batch", "batches"), [(10, 1), (25, 1), (50, 1), (10, 3)])
def test_flexgen_adds_what_the_transfer_of_new_caches_takes(batch: int, batches: int) -> None:
    """Both compute all the time at these batches; FlexGen also waits for b x 512 keys and values of every batch."""
    link = load_hardware("a4000-7950x", None).link("vram", "dram")
    assert link is not None
    stores = batches * (batch * PROMPT * HIDDEN * WIDTH / link.bandwidth.value + link.latency.value)
    found = per_layer(batch, batches)
    seconds, work = found["op-split"]
    assert seconds == pytest.approx(work, rel=1e-6)
    seconds, work = found["flexgen"]
    assert seconds == pytest.approx(work + stores, rel=1e-6)


def test_a_short_prompt_is_bound_by_its_weights_either_way() -> None:
    found = per_layer(1, 1)
    assert found["op-split"][0] > 2 * found["op-split"][1]
    assert found["flexgen"][0] == pytest.approx(found["op-split"][0], rel=0.02)


def test_the_simulation_with_shared_memories_says_the_same() -> None:
    small, large = per_layer(10, 1, ideal=False), per_layer(40, 1, ideal=False)
    lost = [each["flexgen"][0] - each["op-split"][0] for each in (small, large)]
    assert lost[1] == pytest.approx(4 * lost[0], rel=0.05)
