"""`optimal` with 4-bit groups: what a plan keeps in them, against trying everything, and other strategies that may."""

import random
from dataclasses import replace

import numpy as np
import pytest
from pairs import least_of_pairs
from questions import SERVER, asked, simulated

from helmsman.planner.checks.accept import accept
from helmsman.planner.memory.usage import memory_use
from helmsman.planner.strategies.flexgen import FlexGen
from helmsman.planner.strategies.layerwise_map import best_map
from helmsman.planner.strategies.offload.allocation import Percentages
from helmsman.planner.strategies.offload.place import Keeping
from helmsman.planner.strategies.offload.strategy import Offloading
from helmsman.planner.strategies.op_split.split_rules import SplitRules
from helmsman.planner.strategies.op_split.strategy import OpSplit
from helmsman.planner.strategies.optimal.configurations.block_ways import BlockWay, block_ways, on_host
from helmsman.planner.strategies.optimal.configurations.rules import Assignment, place
from helmsman.planner.strategies.optimal.search.compositions import Aim
from helmsman.planner.strategies.optimal.search.finalists import Finalists
from helmsman.planner.strategies.optimal.strategy import Optimal
from helmsman.planner.strategies.streaming.question import Question
from helmsman.planner.strategies.weights_on_host import WeightsOnHost
from helmsman.schemas.errors import InfeasibleError

STEP = Aim("decode step", {"decode": 1.0})
REQUEST = Aim("request", {"prefill": 1.0, "decode": 127.0})
MB = 10**6
ALL = ("weights", "kv")


def question(*quarters, vram: int = 90, model: str = "opt-125m", **asking) -> Question:
    found = asked(model, vram=vram * MB, **asking)
    return replace(found, frame=replace(found.frame, fused=True, quarters=quarters))


def sample(optimal: Optimal, seed: int, count: int) -> list[BlockWay]:
    return random.Random(seed).sample([way for way in optimal.blocks.ways if way.q4], count)


@pytest.mark.parametrize(
    ("quarters", "seed"), [(("weights",), 0), pytest.param(ALL, 1, marks=pytest.mark.nightly)], ids=str
)
def test_no_pair_of_blocks_beats_the_bound(quarters, seed):
    """Two blocks in every way of a sample, most with something in groups, predicted task by task."""
    optimal = Optimal(question(*quarters, vram=(85, 95)[seed], layers=2, batch=1 + 7 * seed), STEP)
    ways = [on_host(optimal.question.frame.model), *sample(optimal, seed, 2)]
    ways += random.Random(seed).sample(optimal.blocks.ways, 1)
    tried, decision = least_of_pairs(optimal, ways), optimal.decide({})
    assert optimal.bound <= tried * (1 + 1e-9)
    assert decision.seconds <= tried * (1 + decision.plan.certificate.gap + 1e-9)


def test_sums_of_parts_are_at_most_what_a_way_asks_for():
    """And what is expanded is all counted."""
    optimal = Optimal(question(*ALL, batch=2), REQUEST)
    blocks = optimal.blocks
    groups = [lane for lane, (_, name) in enumerate(blocks.lanes) if name == "cuda:decompress"]
    for row in (blocks.ways.index(way) for way in sample(optimal, 3, 15)):
        exact, summed = blocks.exact(row), blocks.summed.lanes[row]
        assert (exact >= summed * (1 - 1e-9)).all()
        assert exact[groups] == pytest.approx(summed[groups])


def test_bytes_of_blocks_are_those_of_the_plan():
    """Kept, and on their way: groups that come, and what they become."""
    optimal = Optimal(question(*ALL, vram=500, layers=4, batch=4), REQUEST)
    blocks, host = optimal.blocks, on_host(optimal.question.frame.model)
    base = uses(optimal, (host,) * 4)
    none = blocks.summed.kept[blocks.ways.index(host)]
    for way in sample(optimal, 4, 15):
        row, found = blocks.ways.index(way), uses(optimal, (way, host, host, host))
        assert found[0] - base[0] == pytest.approx(blocks.summed.kept[row] - none)
        idle = replace(way, q4=(), resident=tuple(k != 3 for k in range(len(way.parts))), cache="accelerator")
        beside = uses(optimal, (replace(idle, parts=("accelerator",) * len(way.parts), prompt="alike"), *(host,) * 3))
        in_flight = blocks.summed.coming[row] @ blocks.buffers
        assert found[1][1] - beside[1][1] == pytest.approx(in_flight[1])


def uses(optimal: Optimal, ways: tuple[BlockWay, ...]) -> np.ndarray:
    """What is kept, and buffers, of the host's and the accelerator's memory."""
    placed = place(optimal.question.frame, Assignment(ways, "host", "host", optimal.blocks.shares))
    found = {use.memory: use for use in memory_use(placed)}
    both = found["dram"], found["vram"]
    return np.array([[u.weights + u.kv + u.pinned for u in both], [u.buffers for u in both]], dtype=float)


def test_groups_where_they_are_faster():
    """Weights that come, and that are kept, while vectors and tables stay as they are; caches only if they may."""
    found = question("weights", vram=700, model="Qwen3-8B", layers=4)
    plain = replace(found, frame=replace(found.frame, quarters=()))
    ours, theirs = (Optimal(each, STEP).decide({}) for each in (found, plain))
    plan = accept(ours.plan)
    packed = [rule for rule in plan.residence if rule.format == "q4"]
    assert packed and all(rule.select.names.endswith(".weight") for rule in packed) and ":q4" in plan.label
    assert all(rule.format == "f16" for rule in plan.kv)
    assert ours.seconds < 0.97 * theirs.seconds
    assert simulated(found, plan) == pytest.approx(plan.predicted.decode.seconds.mid, rel=1e-3)
    assert {rule.format for rule in theirs.plan.residence} == {"f16"}


@pytest.mark.nightly
def test_finalists_with_less_in_groups_are_of_the_question_that_was_asked(monkeypatch):
    """A finalist's question tells the explanation, the proof and the rules of its plan which search it is of."""
    monkeypatch.setattr(
        "helmsman.planner.strategies.optimal.search.finalists._GOOD_GAP", -1.0
    )  # narrower questions are all asked
    whole = question(*ALL, vram=700, model="Qwen3-8B", layers=4)
    search, narrow = Finalists(whole, STEP), Finalists(whole, STEP, fewer=False)
    finalists = search.answer[0]
    assert len(finalists) > len(narrow.answer[0])
    assert all(each.question is whole for each in finalists if each not in search.alone)


def rivals(found: Question):
    """Every strategy that compresses weights, under the same software."""
    frame, costs, tiers = found.frame, found.cost_options, Percentages(0, 100, 0)
    keeping = Keeping("dram", compress=True)
    yield OpSplit(frame, SplitRules(compress="weights"), costs)
    yield best_map(frame, tiers, keeping, costs)
    yield Offloading(frame, WeightsOnHost(), keeping, costs)


@pytest.mark.nightly
def test_never_slower_than_others_that_compress_weights():
    found = question("weights", vram=700, model="opt-1.3b", machine=SERVER, layers=4, batch=8)
    ours = Optimal(found, STEP).decide({})
    for rival in rivals(found):
        theirs = simulated(found, rival.decide({}).plan)
        assert simulated(found, ours.plan) <= theirs and ours.plan.certificate.lower_bound <= theirs


@pytest.mark.nightly
def test_all_in_groups_where_nothing_else_fits():
    """Not even all memories together hold the weights as they are used; the bound of the pass knows the groups."""
    found = question(*ALL, vram=2100, model="Qwen2.5-14B", layers=44)
    decision = Optimal(found, STEP).decide({})
    assert decision.plan.predicted.decode.lower_bound <= decision.seconds
    assert sum(use.weights for use in decision.plan.predicted.memory) < found.frame.model.layers * 0.6e9


def test_caches_in_groups_that_would_not_fit_as_they_are_read():
    """The prompt pass reads more keys and values, expanded, than all memories hold."""
    found = question(vram=7_500, model="Qwen2.5-14B", batch=16, prompt_tokens=512, output_tokens=64, context=576)
    plan = FlexGen(found.frame, True, False, found.cost_options).decide({}).plan
    assert 0 < plan.predicted.prefill.lower_bound <= plan.predicted.prefill.seconds.mid


@pytest.mark.parametrize("machine", ["ryzen7950x-cpu", "m1-16gb"])
def test_where_nothing_comes_to_an_accelerator_nothing_is_in_groups(machine):
    found = asked("Qwen3-0.6B", machine)
    packed = replace(found, frame=replace(found.frame, quarters=ALL))
    assert Optimal(packed, STEP).decide({}).plan.label == Optimal(found, STEP).decide({}).plan.label
    large = asked("Llama-3.1-70B", machine, batch=64)
    with pytest.raises(InfeasibleError, match="optimal does not fit"):
        Optimal(replace(large, frame=replace(large.frame, quarters=ALL)), STEP).decide({})


def test_ways_in_groups_are_each_there_once():
    model = question().frame.model
    ways = block_ways(model, quarters=ALL)
    assert len(set(ways)) == len(ways) and {way for way in ways if not way.q4} == set(block_ways(model))
    assert any(way.q4 == ("coming", "resident") for way in ways)
    for way in ways:
        assert "cache" not in way.q4 or way.cache_comes
        assert "resident" not in way.q4 or "both" not in way.parts
        assert not ("coming" in way.q4 and "both" in way.parts and way.prompt == "accelerator")
