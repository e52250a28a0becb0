"""Passes step by step: against those of whole blocks, and against what is predicted task by task."""

import random

import numpy as np
import pytest
from paces import random_pace
from questions import asked

from helmsman.planner.strategies.optimal.compose import Composition
from helmsman.planner.strategies.optimal.compositions import Aim, Compositions, Found
from helmsman.planner.strategies.optimal.finalist import predicted
from helmsman.planner.strategies.optimal.in_order import InOrder
from helmsman.planner.strategies.optimal.order import timed
from helmsman.planner.strategies.optimal.pace import HOST, Pace, Track
from helmsman.planner.strategies.optimal.settle import Settling
from helmsman.planner.strategies.optimal.steps import Steps
from helmsman.planner.strategies.optimal.strategy import Optimal
from helmsman.planner.strategies.optimal.tracks import Tracks

STEP = Aim("decode step", {"decode": 1.0})


@pytest.mark.parametrize("buffers", [1, 2, 3])
def test_three_steps_of_equal_losses_take_what_a_block_takes(buffers):
    """With crossings: what waits for nothing, what needs all that comes, and what follows."""
    chance = random.Random(buffers)

    ways = tuple(random_pace(chance, 0.01, 0.8) for _ in range(5))
    track, link = Track(ways, {(HOST, 0): 0.2, (0, HOST): 0.1}, ends=(HOST, 0)), np.array([each.link for each in ways])
    seconds = np.array([[each.before, each.used, each.after] for each in ways])
    alike = (np.repeat(np.array([[getattr(each, what)] for each in ways]), 3, axis=1) for what in ("loss", "drag"))
    steps = Steps(seconds, *alike, np.stack([0 * link, link, 0 * link], axis=1), link)
    orders = np.array([[chance.randrange(5) for _ in range(9)] for _ in range(40)])
    found = steps.passes(orders, np.arange(5), track, buffers)
    assert found.tolist() == pytest.approx(timed(orders.tolist(), track, buffers))
    longer = steps.lasting(2 * seconds.sum(axis=1)).passes(orders, np.arange(5), track, buffers)
    assert (longer > found).all()


def test_steps_that_are_alike_are_one_and_take_as_long():
    loss, none = np.array([[0.3, 0.3, 0.31, 0.33]]), np.zeros((1, 4))
    steps = Steps(np.array([[1.0, 2.0, 1.0, 0.5]]), loss, none + 1, np.array([[0.0, 2.0, 0.0, 0.0]]), np.array([2.0]))
    merged, track = steps.merged(), Track((Pace(4.5, 2.0),))
    assert merged.seconds.tolist() == [[1.0, 2.0, 1.5]] and merged.needs.tolist() == [[0.0, 2.0, 0.0]]
    orders = np.zeros((1, 6), dtype=np.intp)
    took = [float(each.passes(orders, orders[0, :1], track, 2)[0]) for each in (steps, merged)]
    assert took[1] == pytest.approx(took[0], rel=0.02)


@pytest.fixture(scope="module")
def found() -> tuple[Optimal, Compositions, Found]:
    """A question, and compositions of its blocks."""
    optimal = Optimal(asked("Qwen3-0.6B", "rtx4060-laptop", vram=300 * 10**6), STEP)
    space = Compositions(optimal.blocks)
    return optimal, space, space.search(STEP)


def blocks_of(space: Compositions, composition: Composition) -> list[int]:
    return [space.name(way) for way, count in composition.counts for _ in range(count)]


def test_steps_of_all_blocks_take_what_their_plan_is_predicted_to_take(found):
    """To within a hundredth, in orders at random."""
    (optimal, space, compositions), chance = found, random.Random(5)
    ends, best = compositions.best[0]
    tracks, rows = Tracks(optimal.blocks), blocks_of(space, best)
    order = InOrder(optimal.question, STEP, tracks)
    pool, outside = np.unique(rows), space.room(ends, STEP).room.ends[0]
    steps, track = tracks.steps("decode", pool), tracks.track(ends, STEP.weights)
    for _ in range(3):
        chance.shuffle(rows)
        plan = predicted(optimal.question, order.assignment(space, ends, rows), STEP)
        took = steps.passes(np.searchsorted(pool, rows)[None], pool, track, 2)[0] + outside
        assert plan is not None and took == pytest.approx(plan.seconds, rel=0.01)


def test_changed_blocks_take_no_longer_and_fit(found):
    """From a composition that is not the best; what both take is predicted."""
    optimal, space, compositions = found
    ends, worst = compositions.best[-1]
    rows = blocks_of(space, worst)
    order = InOrder(optimal.question, STEP, Tracks(optimal.blocks))
    settled = Settling(space, order.tracks, STEP, ends).settled(np.array(rows, dtype=np.intp))
    took = [predicted(optimal.question, order.assignment(space, ends, each), STEP) for each in (rows, settled.tolist())]
    assert took[0] is not None and took[1] is not None and took[1].seconds < took[0].seconds
