"""What `optimal` says about plans of several accelerators: prices and rules of each, against answers from nothing."""

import re

import numpy as np
import pytest

from helmsman.hwdb.load_hardware import load_hardware
from helmsman.hwdb.load_model import load_model
from helmsman.planner.cost.model import CostOptions
from helmsman.planner.machine import roles
from helmsman.planner.strategies.optimal.explain.ablation import undone
from helmsman.planner.strategies.optimal.explain.divisible import DivisibleQuestion, divisible_blocks, on_machine
from helmsman.planner.strategies.optimal.explain.explanation import explanation, near_to, own
from helmsman.planner.strategies.optimal.explain.quantities import quantities
from helmsman.planner.strategies.optimal.explain.shadow_prices import priced
from helmsman.planner.strategies.optimal.search.compositions import Aim, Compositions
from helmsman.planner.strategies.optimal.strategy import Optimal
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.planner.strategies.streaming.question import Question
from helmsman.schemas.explanation import Explanation
from helmsman.schemas.workload import Workload

STEP = Aim("decode step", {"decode": 1.0})
MB = 10**6


def question(vram: int, vram1: int | None = None, layers: int = 6, name: str = "opt-125m") -> Question:
    """A model with so many MB on each of two GPUs."""
    found, room = load_hardware("rtx3090x2-5950x", None), {"vram": vram, "vram1": vram1 or vram}
    memories = tuple(
        each.model_copy(update={"available": room[each.name] * MB}) if each.name in room else each
        for each in found.memories
    )
    hardware = found.model_copy(update={"memories": memories})
    model = load_model(name).with_layers(layers)
    workload = Workload(prompt_tokens=128, output_tokens=128, context=256)
    return Question(Frame(model, roles(hardware), workload, fused=True), CostOptions())


@pytest.fixture(scope="module")
def shared() -> Optimal:
    """A model that fits neither GPU, and not both."""
    return Optimal(question(30, layers=3), STEP)


@pytest.fixture(scope="module")
def found(shared) -> Explanation:
    return explanation(shared, shared.decide({}).plan, tokens=1)


def test_every_accelerator_has_its_quantities(shared):
    found = {(each.what, each.name) for each in quantities(shared.question.frame.roles)}
    away = {("capacity", "vram"), ("memory bandwidth", "vram"), ("arithmetic", "cuda")}
    links = {("link bandwidth", "h2d"), ("link bandwidth", "d2h")}
    assert away | links | {(what, f"{name}1") for what, name in away | links} < found
    assert {("capacity", "dram"), ("memory bandwidth", "dram"), ("cores", "cpu")} < found


@pytest.mark.parametrize("rooms", [pytest.param((30, 30), marks=pytest.mark.nightly), (30, 60)])
def test_prices_are_finite_differences(rooms):
    """Bar: 5 % (larger instances: `benchmarks.shadow_prices --several`)."""
    optimal = Optimal(question(*rooms, layers=3), STEP)
    near = near_to(optimal, optimal.finalists[0])
    solved = near.solved()
    tried = [each for each in quantities(near.question.frame.roles) if each.name in ("vram1", "dram", "h2d1")]
    for number, quantity in enumerate(tried):
        sign, found = (1, -1)[number % 2], priced(near, solved, quantity)
        unit, slope = quantity.size / solved.seconds, found.more if sign > 0 else found.less
        other = on_machine(near.question, quantity, 1 + sign * slope.step)
        fresh = DivisibleQuestion(divisible_blocks(other, near.blocks), other, STEP, near.among).solved()
        difference = (solved.seconds - fresh.seconds) / (sign * slope.step)
        assert slope.price * unit == pytest.approx(difference / solved.seconds, rel=0.05, abs=1e-4), quantity


@pytest.mark.nightly
def test_equal_accelerators_have_equal_prices_of_memory_and_equal_rules(found):
    prices = {(each.what, each.name): each for each in found.prices}
    vram, vram1 = (prices["capacity", name] for name in ("vram", "vram1"))
    assert vram.more.price > 0 and vram.more.price == pytest.approx(vram1.more.price, rel=0.1)
    assert found.full == ("vram", "vram1")
    rows = {each.rule: each.seconds_more for each in found.undone}
    first, second = (rows[f"weights stay on {name}"] for name in ("cuda", "cuda1"))
    assert first == pytest.approx(second, rel=0.05, abs=3e-3 * found.seconds)


@pytest.mark.nightly
def test_without_one_of_them_a_plan_is_no_worse_than_that_of_one(shared, found):
    """In blocks: the ends may still be there."""
    rows = {each.rule: each for each in found.undone}
    for name, other in (("cuda", "cuda1"), ("cuda1", "cuda")):
        row = rows[f"{name} computes in blocks"]
        used = set(re.findall(r"cuda1?", row.label))
        assert used == {other} and 0 <= row.seconds_more <= shared.with_one.finalists[0].seconds


@pytest.mark.nightly
def test_no_rule_undone_is_faster_and_the_dearest_comes_first(found):
    costs = [each.seconds_more for each in found.undone]
    known = [cost for cost in costs if cost is not None]
    assert costs[len(costs) - len(known) :] == known == sorted(known, reverse=True) and known[-1] >= 0


@pytest.mark.nightly
def test_a_plan_that_uses_both_is_bound_by_both():
    """Blocks could be on either: what binds is said of the plan, not of another one that is as good."""
    optimal = Optimal(question(600, name="opt-1.3b"), STEP)
    best = optimal.finalists[0]
    assert all(sum(way.on == on for way in best.chosen.blocks) > 1 for on in (0, 1))
    near = near_to(optimal, best)
    solved = near.solved()
    rates = [each for each in quantities(optimal.question.frame.roles) if each.what == "memory bandwidth"]
    shares = {each.name: priced(near, solved, each, own(near, solved, best)).shares[0] for each in rates}
    assert shares["vram"] > 0.2 and 0.3 < shares["vram1"] / shares["vram"] < 3


@pytest.mark.nightly
def test_a_plan_of_one_of_two_is_explained_as_such(shared):
    one = shared.with_one.finalists[0]
    near = near_to(shared, one)
    assert len(near.blocks.members) == 1 and near.solved().seconds <= one.seconds * 1.01
    first, *others = undone(shared, one)
    assert first.rule == "cuda1 not used" and first.seconds <= 0
    assert others and all("cuda1" not in each.rule for each in others)


def test_some_of_the_ways_are_the_same_ways(shared):
    blocks = divisible_blocks(shared.question, shared.blocks)
    rows = np.arange(5, len(blocks.ways), 37)
    some = blocks.only(rows)
    assert some.ways == tuple(blocks.ways[row] for row in rows)
    for of in ("lanes", "kept", "coming"):
        assert np.array_equal(getattr(some.summed, of), getattr(blocks.summed, of)[rows])
    assert np.array_equal(some.exact(3), blocks.exact(int(rows[3])))
    assert np.array_equal(some.free(("host", 1)), blocks.free(("host", 1)))


def test_a_search_leaves_out_what_is_no_better_than_what_is_known(shared):
    blocks = shared.with_one.blocks
    found = Compositions(blocks).search(STEP)
    assert not Compositions(blocks).search(STEP, beat=found.bound * 0.9).best
    again = Compositions(blocks).search(STEP, beat=found.best[0][1].seconds * 1.01)
    assert again.best[0][1].seconds == pytest.approx(found.best[0][1].seconds, rel=3e-3)
