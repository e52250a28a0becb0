"""A pass of one batch block by block, against passes that are easily counted and against lowering the plan itself."""

import random
from dataclasses import replace
from itertools import permutations

import pytest
from paces import random_pace
from seeds import seeds

from helmsman.planner.strategies.optimal.order.flow import flow_seconds
from helmsman.planner.strategies.optimal.order.order import arranged_each, exchanged, lined_up, seconds, timed
from helmsman.planner.strategies.optimal.order.pace import HOST, Pace, Track, paced


def test_blocks_for_which_nothing_comes_follow_each_other():
    blocks = [paced(chain, 0.0, 0.0, 0.0) for chain in (1.0, 2.0, 0.5)]
    assert flow_seconds(blocks, {1: 0.25}, 2) == pytest.approx(3.75)


def test_a_link_that_takes_longer_than_blocks_never_rests():
    """Everything comes one after the other, then the last block does what waited for it."""
    blocks = [paced(1.0, 3.0, 3.5, 0.0)] * 5
    assert flow_seconds(blocks, {}, 2) == pytest.approx(5 * 3.0 + 0.5)


def test_blocks_that_take_longer_than_their_link_wait_for_the_first_only():
    blocks = [paced(3.0, 1.0, 4.0, 0.0)] * 5
    assert flow_seconds(blocks, {}, 2) == pytest.approx(1.0 + 5 * 3.0)


def test_nothing_comes_without_room_for_it():
    """With one buffer what comes for a block begins when the one before is done with its own."""
    blocks = [paced(2.0, 1.0, 3.0, 0.5)] * 4
    assert flow_seconds(blocks, {}, 1) == pytest.approx(1.0 + 2.0 + 3 * 2.5)
    assert flow_seconds(blocks, {}, 2) == pytest.approx(1.0 + 4 * 2.0)


def test_operations_and_link_slow_each_other():
    """While both work the operation has half of its speed and the link three quarters of its own."""
    blocks = [paced(1.0, 0.0, 0.0, 0.0), Pace(1.0, 3.0, 0.0, 1.0, 0.0)]
    slow = [Pace(each.chain, each.link, each.before, each.used, each.after, 0.5, 0.75) for each in blocks]
    assert flow_seconds(slow, {}, 2) == pytest.approx(2.0 + 1.5 + 1.0)


@pytest.mark.parametrize("seed", seeds(range(20), 6))
def test_no_pass_is_shorter_than_its_link_or_its_operations(seed):
    chance = random.Random(seed)
    ways = []
    for _ in range(4):
        chain, link = chance.uniform(0.1, 2.0), chance.choice([0.0, chance.uniform(0.1, 3.0)])
        after = chance.uniform(0.0, chain)
        ways.append(paced(chain, link, link + chance.uniform(after, chain), after))
    track, counts = Track(tuple(ways)), {way: chance.randint(1, 6) for way in range(4)}
    least = max(sum(getattr(ways[way], what) * count for way, count in counts.items()) for what in ("chain", "link"))
    most = sum((ways[way].chain + ways[way].link) * count for way, count in counts.items())
    for buffers in (1, 2, 3):
        found = arranged_each([counts], track, buffers)[0]
        assert least - 1e-9 <= found.seconds <= most + 1e-9
        assert sorted(found.rows) == sorted(way for way, count in counts.items() for _ in range(count))
        better = exchanged(found.rows, track, buffers)
        assert sorted(better) == sorted(found.rows) and seconds(better, track, buffers) <= found.seconds * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("buffers", [2, 3])
def test_orders_are_as_good_as_the_best_of_all(seed, buffers):
    """Of three ways and seven blocks every order is timed; the order that was found takes no longer."""
    chance = random.Random(seed)
    ways = [paced(2.0, 0.0, 0.0, 0.0)]
    for _ in range(2):
        chain, link = chance.uniform(0.5, 1.5), chance.uniform(0.5, 3.0)
        ways.append(paced(chain, link, link + chance.uniform(0.0, chain), 0.0))
    track, counts = Track(tuple(ways)), {0: 2, 1: 3, 2: 2}
    every = set(permutations([way for way, count in counts.items() for _ in range(count)]))
    least = min(seconds(rows, track, buffers) for rows in every)
    found = lined_up(arranged_each([counts], track, buffers)[0], counts, track, buffers)
    assert sorted(found.rows) == sorted(next(iter(every)))
    assert found.seconds == seconds(found.rows, track, buffers) == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize("buffers", [1, 2, 3])
def test_many_orders_at_once_take_what_each_takes(buffers):
    """Operations and links that slow each other, parts of blocks at random, crossings, and a second pass."""
    chance = random.Random(buffers)

    crossings = {(HOST, 0): 0.2, (0, HOST): 0.1}
    passes = [
        Track(tuple(random_pace(chance) for _ in range(5)), crossings, ends=ends) for ends in ((HOST, 0), (0, HOST))
    ]
    track = replace(passes[0], others=((0.5, passes[1]),))
    orders = [[chance.randrange(5) for _ in range(9)] for _ in range(40)]
    assert timed(orders, track, buffers) == pytest.approx([seconds(rows, track, buffers) for rows in orders])
