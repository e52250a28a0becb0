"""Rules of caches of offloading strategies: by blocks, by heads, as few as fit in host memory."""

from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
from questions import limited
from together import together

from helmsman.hwdb.load_model import load_model
from helmsman.lowering.lower import lower
from helmsman.lowering.rules import kv_homes
from helmsman.planner.checks.accept import accept
from helmsman.planner.cost.model import CostOptions
from helmsman.planner.decision import Decision
from helmsman.planner.machine import roles
from helmsman.planner.memory.usage import memory_use
from helmsman.planner.prediction.predict import mean_step, pass_seconds
from helmsman.planner.strategies.offload.allocation import Percentages
from helmsman.planner.strategies.offload.caches import divisions, interleaved, least_away
from helmsman.planner.strategies.offload.place import Keeping
from helmsman.planner.strategies.offload.strategy import Offloading
from helmsman.planner.strategies.percentages import FlexGenPercentages
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.planner.strategies.weights_on_host import WeightsOnHost
from helmsman.schemas.plan import LayerRange, Select
from helmsman.schemas.workload import Workload


@cache
def question(rule: str, vram: int = 6, batch: int = 64, model: str = "Qwen3-8B") -> Offloading:
    work = Workload(prompt_tokens=512, output_tokens=32, batch=batch, context=544)
    machine = limited("a10-xeon6342", vram * 2**30)
    frame = Frame(load_model(model), roles(machine), work)
    return Offloading(frame, WeightsOnHost(), Keeping("dram", cache=rule), CostOptions())


@cache
def decided(rule: str) -> Decision:
    return question(rule).decide({})


@together("away", range(33))
def test_blocks_in_host_memory_lie_at_equal_distances(away):
    chosen = [layer for run in interleaved(32, away) for layer in range(run.start, run.stop)]
    assert len(chosen) == away == len(set(chosen))
    gaps = [after - before for before, after in pairwise(chosen)]
    assert not gaps or max(gaps) - min(gaps) <= 1
    runs = interleaved(32, away)
    assert all(before.stop < after.start for before, after in pairwise(runs))


def test_the_fewest_that_fit():
    model = load_model("Qwen3-8B")
    for least in range(model.layers + 1):
        assert least_away(model, "layerkv", lambda away, least=least: away >= least) == least
    assert least_away(model, "layerkv", lambda away: False) == model.layers
    assert least_away(model, "host", lambda away: False) == 0


@pytest.mark.parametrize("rule", ["layerkv", "headinfer"])
def test_as_few_as_fit_are_in_host_memory(rule):
    """One part less does not fit, and what a cache needs lies where the rules say."""
    asked = question(rule)
    plan = accept(decided(rule).plan)
    away, parts = asked.kept.away, divisions(plan.model, rule)
    assert 0 < away < parts
    assert not replace(asked, keeping=replace(asked.keeping, away=away - 1)).fits(asked.frame.workload)
    kept = {use.memory: use.kv for use in memory_use(plan)}
    assert kept["dram"] / (kept["dram"] + kept["vram"]) == pytest.approx(away / parts)
    assert f"{rule} {away} of {parts}" in plan.label


@pytest.mark.parametrize("rule", ["layerkv", "headinfer"])
def test_only_what_is_in_host_memory_is_transferred(rule):
    asked, plan = question(rule), decided(rule).plan
    tasks = lower(plan, mean_step(plan.workload)).tasks
    coming = {t.layer: t.bytes for t in tasks if t.op == "kv" and t.memories == ("dram", "vram")}
    past = 2 * plan.workload.batch * (plan.workload.mean_context - 1) * plan.model.dense.kv_width * 2
    away, parts = asked.kept.away, divisions(plan.model, rule)
    if rule == "layerkv":
        assert set(coming.values()) == {past} and len(coming) == away
    else:
        assert set(coming.values()) == {past * away // parts} and len(coming) == plan.model.layers


def test_heads_of_a_block_have_two_homes():
    asked, plan = question("headinfer"), decided("headinfer").plan
    for what in ("keys", "values"):
        found = kv_homes(plan, what, 7, plan.model.dense.kv_heads)
        assert [(piece.start, piece.stop, piece.rule.memory) for piece in found] == [
            (0, asked.kept.away, "dram"),
            (asked.kept.away, plan.model.dense.kv_heads, "vram"),
        ]


def test_a_cache_that_fits_stays():
    for rule in ("layerkv", "headinfer"):
        roomy = question(rule, vram=20, batch=4)
        assert roomy.kept.away == 0
        plain = question("accelerator", vram=20, batch=4)
        assert roomy.decide({}).seconds == plain.decide({}).seconds


def test_parts_of_a_cache_are_faster_than_all_of_it_from_host_memory():
    host = decided("host").seconds
    for rule in ("layerkv", "headinfer"):
        assert decided(rule).seconds < host


@pytest.mark.parametrize("barrier", [True, False])
def test_interleaved_blocks_are_not_slower_than_the_first_ones(barrier):
    """What comes for one block hides behind those between (LayerKV). With FlexGen's barriers only one stage is loaded
    ahead, so that it hides behind the FFN before it wherever it is; without them a run of blocks waits for the link."""
    resident = FlexGenPercentages(Percentages(0, 0, 100))
    asked = replace(question("layerkv", vram=12, batch=60, model="Qwen3-4B"), allocator=resident)
    assert 0 < asked.kept.away < asked.frame.model.layers // 2
    schedule = asked.placement.schedule.model_copy(update={"barrier": barrier, "stage": "half" if barrier else "block"})
    spread = replace(asked.placement, schedule=schedule)
    kept, rest = spread.kv[0], spread.kv[-1]
    run = kept.model_copy(update={"select": Select(layers=LayerRange(start=0, stop=asked.kept.away))})
    step = mean_step(spread.workload)
    times = [pass_seconds(lower(each, step), asked.costs) for each in (spread, replace(spread, kv=(run, rest)))]
    assert times[0] < times[1] * (1 + 1e-9 if barrier else 0.9)
