"""Shadow prices: closed forms, against finite differences answered from nothing, and what their parts promise."""

import random
from dataclasses import replace

import numpy as np
import pytest
from daily import one_in
from questions import asked

from helmsman.lowering.ops import op_extent
from helmsman.planner.cost.model import CostOptions
from helmsman.planner.machine import roles
from helmsman.planner.strategies.optimal.configurations.block_ways import on_accelerator, on_host
from helmsman.planner.strategies.optimal.configurations.rules import Assignment
from helmsman.planner.strategies.optimal.explain.divisible import (
    DivisibleQuestion,
    OneSide,
    beside,
    divisible_blocks,
    on_machine,
)
from helmsman.planner.strategies.optimal.explain.quantities import Quantity, quantities
from helmsman.planner.strategies.optimal.explain.shadow_prices import priced
from helmsman.planner.strategies.optimal.pricing.fractional import Border, divided
from helmsman.planner.strategies.optimal.program.relaxation import relaxation
from helmsman.planner.strategies.optimal.program.ways import Room, Ways
from helmsman.planner.strategies.optimal.search.compositions import Aim
from helmsman.planner.strategies.optimal.strategy import Optimal
from helmsman.planner.strategies.streaming.question import Question

STEP = Aim("decode step", {"decode": 1.0})
REQUEST = Aim("request", {"prefill": 1.0, "decode": 127.0})
HELD = Aim("decode step", {"decode": 1.0}, {"prefill": 0.09})
NIGHTLY = pytest.mark.nightly
MB = 10**6
NOTHING = 1e-4
OTHERS = (("capacity", "dram"), ("link bandwidth", "d2h"), ("arithmetic", "cuda"))
"""Worth nothing in most of the instances here."""


def near(question, aim=STEP, count=30):
    """A question whose blocks may be divided among some ways, with room on its way for a whole one where they come."""
    blocks = divisible_blocks(question, Optimal(question, aim).blocks)
    streams, model = question.frame.roles.separate, question.frame.model
    alone = [on_accelerator(model, not streams, "host" if streams else "accelerator"), on_accelerator(model)]
    rows = [blocks.ways.index(each) for each in (*alone, on_host(model))]
    sampled = random.Random(0).sample(sorted(beside(blocks, alone)), min(count, len(beside(blocks, alone))))
    return DivisibleQuestion(blocks, question, aim, np.union1d(rows, sampled))


def difference(question, solved, quantity, factor):
    """Seconds saved by a base unit more, where a machine with so much more is asked about from nothing."""
    other = on_machine(question.question, quantity, factor)
    fresh = DivisibleQuestion(divisible_blocks(other, question.blocks), other, question.aim, question.among)
    return (solved.seconds - fresh.solved().seconds) / ((factor - 1) * quantity.size)


def of(question, what, name):
    found = quantities(question.question.frame.roles)
    return next(each for each in found if (each.what, each.name) == (what, name))


def test_two_ways_and_a_memory_in_closed_form():
    """V = 3 x 10 - (3 - 1) x K / 2: a byte saves one second until all blocks are fast."""
    ways = Ways(np.array([[1.0], [3.0]]), np.array([[2.0], [0.0]]), np.zeros((2, 0)))
    room = Room(10, np.zeros(1), np.ones(1), np.zeros(1, dtype=np.intp), np.array([8.0]), np.zeros((0, 1)))
    found = relaxation(ways, room)
    assert found.bound == pytest.approx(30 - 8)
    assert found.prices == pytest.approx([1.0]) and found.lanes == pytest.approx([1.0])
    assert relaxation(ways, replace(room, free=np.array([25.0]))).prices == pytest.approx([0.0])


@pytest.mark.parametrize(
    ("model", "machine", "vram", "batch", "aim"),
    one_in(
        3,
        [
            ("opt-125m", "rtx4060-laptop", 150, 1, STEP),
            pytest.param("opt-125m", "rtx4060-laptop", 150, 16, REQUEST, marks=NIGHTLY),
            pytest.param("opt-125m", "a10-xeon6342", 200, 4, REQUEST, marks=NIGHTLY),
            ("opt-125m", "a10-xeon6342", 250, 1, HELD),
            pytest.param("Qwen3-0.6B", "rtx4060-laptop", 700, 1, STEP, marks=NIGHTLY),
            pytest.param("Qwen3-0.6B", "rtx3060-5600x", 900, 4, STEP, marks=NIGHTLY),
            pytest.param("Qwen3-0.6B", "p40-xeon-e5-2696v3", 800, 16, STEP, marks=NIGHTLY),
            pytest.param("opt-1.3b", "rtx3090-5950x", 1500, 4, STEP, marks=NIGHTLY),
            pytest.param("opt-1.3b", "gh200-96gb", 2000, 1, STEP, marks=NIGHTLY),
            ("Qwen3-0.6B", "m1-16gb", None, 4, STEP),
        ],
    ),
)
def test_prices_are_finite_differences(model, machine, vram, batch, aim):
    """Bar: 5 % (50 larger instances: `benchmarks.shadow_prices`)."""
    question = near(asked(model, machine, vram=vram and vram * MB, batch=batch), aim)
    solved = question.solved()
    tried = [each for each in quantities(question.question.frame.roles) if (each.what, each.name) not in OTHERS]
    for number, quantity in enumerate(tried):
        found = priced(question, solved, quantity)
        unit = quantity.size / solved.seconds
        for slope in (found.more, found.less):
            assert slope.price * unit == pytest.approx(slope.again * unit, rel=0.05, abs=NOTHING), quantity
        if number % 2:
            continue
        sign, slope = ((1, found.more), (-1, found.less))[number // 2 % 2]
        again = difference(question, solved, quantity, 1 + sign * slope.step) * unit
        assert slope.again * unit == pytest.approx(again, rel=1e-3, abs=NOTHING), (quantity, sign)


def test_memory_that_is_short_has_a_price_and_memory_that_is_not_has_none():
    question = near(asked("Qwen3-0.6B", vram=700 * MB))
    solved = question.solved()
    vram, dram = (priced(question, solved, of(question, "capacity", name)) for name in ("vram", "dram"))
    assert vram.more.price > 0 and vram.less.price == pytest.approx(vram.more.price, rel=0.05)
    assert dram.more.price == dram.less.price == 0.0


@pytest.mark.nightly
def test_seconds_are_inverse_to_all_rates_together():
    """Euler: without constants, what every rate shortens adds up to all of the seconds."""
    question = near(without_constants(asked("Qwen3-0.6B", vram=700 * MB)))
    solved = question.solved()
    rates = [each for each in quantities(question.question.frame.roles) if each.what != "capacity"]
    slopes = [priced(question, solved, each).more.price * each.size / solved.seconds for each in rates]
    assert sum(slopes) == pytest.approx(1.0, abs=0.005)


def without_constants(question):
    """Neither launches nor latencies."""
    old = question.frame.roles
    latencies = (link.latency.model_copy(update={"value": 0.0, "p10": 0.0, "p90": 0.0}) for link in old.hardware.links)
    pairs = zip(old.hardware.links, latencies, strict=True)
    links = tuple(link.model_copy(update={"latency": none}) for link, none in pairs)
    found = roles(old.hardware.model_copy(update={"links": links}))
    return Question(replace(question.frame, roles=found), CostOptions(corrections=False))


def test_the_solution_prices_itself():
    """The Lagrangian of a solution is its value, limits and all."""
    for question in (near(asked("opt-125m", vram=150 * MB), REQUEST), near(asked("opt-125m", vram=250 * MB), HELD)):
        solved = question.solved()
        assert question.priced(solved).sum() == pytest.approx(solved.seconds, rel=1e-6)


def test_the_divisible_value_bounds_the_plan():
    optimal = Optimal(asked("opt-125m", vram=150 * MB), STEP)
    best = optimal.finalists[0]
    blocks = divisible_blocks(optimal.question, optimal.blocks)
    question = DivisibleQuestion(blocks, optimal.question, STEP, beside(blocks, best.chosen.blocks))
    assert question.solved().seconds <= best.seconds * 1.01


def test_a_processor_alone_is_priced_by_its_plan():
    question = without_constants(asked("opt-125m", "epyc9554-cpu"))
    way = on_host(question.frame.model)
    alone = OneSide(question, Assignment((way,) * question.frame.model.layers, "host", "host", {}), STEP)
    solved = alone.solved()
    found = {each.what: priced(alone, solved, each) for each in quantities(question.frame.roles)}
    shares = {what: each.more.price * each.quantity.size / solved.seconds for what, each in found.items()}
    assert shares["capacity"] == 0.0 and shares["memory bandwidth"] == pytest.approx(1.0, abs=0.01)
    assert found["memory bandwidth"].shares == pytest.approx((shares["memory bandwidth"],))


def test_less_of_a_memory_than_the_plan_needs_has_no_price():
    question = asked("opt-125m", "epyc9554-cpu")
    memory = question.frame.roles.host.memory
    way = on_host(question.frame.model)
    chosen = Assignment((way,) * question.frame.model.layers, "host", "host", {})
    tight = on_machine(question, Quantity("capacity", memory, 1.0), 1e-4)
    alone = OneSide(tight, chosen, STEP)
    assert alone.solved() is None


def test_rows_divided_anywhere_are_the_same_work():
    question = asked("Qwen3-0.6B", vram=700 * MB)
    blocks = Optimal(question, STEP).blocks.members[0]
    whole = sum(task.bytes for task in blocks.bases["decode"].here if task.kind == "linear" and task.layer is not None)
    model, split = question.frame.model, blocks.bases["decode"].split["accelerator"]
    for share in (0.301, 0.5, 0.777):
        borders = {
            op: Border(_accelerator_rows(split, op), share, op_extent(model, op)[1])
            for op in ("q", "k", "v", "o", "gate", "up", "down")
        }
        parts = [task for task in divided(split, borders) if task.kind == "linear" and task.layer is not None]
        assert sum(task.bytes for task in parts) == pytest.approx(whole, rel=1e-6)
        mine = sum(task.bytes for task in parts if task.resource == "cuda")
        assert mine == pytest.approx(share * whole, rel=1e-6)


def _accelerator_rows(tasks, op):
    task = next(task for task in tasks if task.op == op and task.kind == "linear" and task.resource == "cuda")
    return task.rows[1]


@pytest.mark.parametrize(
    ("quantity", "path"),
    [
        (Quantity("capacity", "vram", 1.0), "memories.vram.available"),
        (Quantity("memory bandwidth", "dram", 1.0), "memories.dram.bandwidth"),
        (Quantity("link bandwidth", "h2d", 1.0), "links.h2d.bandwidth"),
        (Quantity("cores", "cpu", 1.0), "devices.cpu.compute"),
    ],
)
def test_more_of_a_thing_is_more_of_that_alone(quantity, path):
    hardware = asked().frame.roles.hardware
    changed = quantity.times(hardware, 2.0)
    kind, name, field = path.split(".")
    before, after = (next(each for each in getattr(of, kind) if each.name == name) for of in (hardware, changed))
    assert getattr(before, field) != getattr(after, field)
    back = quantity.times(changed, 0.5)
    assert back.model_copy(update={"memories": hardware.memories}) == hardware
    assert quantity.times(hardware, 1.0).memory("vram") == hardware.memory("vram")
