"""Compositions of blocks: the search against trying everything, the bound against the truth."""

from itertools import combinations_with_replacement

import numpy as np
import pytest
from seeds import seeds

from helmsman.planner.strategies.optimal.program.compose import ComposeResult, compose
from helmsman.planner.strategies.optimal.program.relaxation import dual, relaxation
from helmsman.planner.strategies.optimal.program.ways import Room, Ways, undominated
from helmsman.planner.strategies.optimal.search.simple_compositions import simple

TIMED, SMALL = 40, 500


def case(seed: int, blocks: int | None = None) -> tuple[Ways, Room]:
    """Whole numbers, so that ties and exact fits are frequent; one or two phases, memories, flows."""
    rng = np.random.default_rng(seed)
    count, lanes, memories, flows = (int(rng.integers(1, most)) for most in (7, 5, 3, 3))
    phases = min(lanes, int(rng.integers(1, 3)))
    made = Ways(
        rng.integers(0, 12, (count, lanes)).astype(float),
        rng.integers(0, 6, (count, memories)).astype(float),
        rng.integers(0, 4, (count, flows)).astype(float),
    )
    total = blocks or int(rng.integers(1, 7))
    room = Room(
        blocks=total,
        ends=rng.integers(0, 5, lanes).astype(float),
        weights=np.array([1.0, float(rng.integers(0, 4))])[:phases],
        phase=np.arange(lanes) % phases,
        free=rng.integers(0, 5 * total, memories).astype(float),
        buffers=rng.integers(0, 3, (flows, memories)).astype(float),
    )
    return made, room


def everything(ways: Ways, room: Room) -> dict[tuple[tuple[int, int], ...], float]:
    """Every composition that fits, with its seconds."""
    found = {}
    for chosen in combinations_with_replacement(range(len(ways)), room.blocks):
        used = list(chosen)
        need = ways.kept[used].sum(axis=0) + ways.coming[used].max(axis=0) @ room.buffers
        if (need <= room.free).all():
            lanes = room.ends + ways.lanes[used].sum(axis=0)
            busiest = (lanes[room.phase == each].max() for each in range(len(room.weights)))
            counts = tuple((way, used.count(way)) for way in sorted(set(used)))
            found[counts] = float(sum(weight * most for weight, most in zip(room.weights, busiest, strict=True)))
    return found


@pytest.mark.parametrize(
    "seed", [seed if seed < TIMED else pytest.param(seed, marks=pytest.mark.nightly) for seed in range(SMALL)]
)
def test_the_best_is_the_best_of_everything(seed):
    ways, room = case(seed)
    found, truth = compose(ways, room), everything(ways, room)
    assert bool(found.best) == bool(truth)
    assert found.bound <= min(truth.values(), default=np.inf) * (1 + 1e-9) + 1e-9
    assert all(truth[each.counts] == pytest.approx(each.seconds) for each in found.best)
    assert not truth or found.best[0].seconds == pytest.approx(min(truth.values()))


@pytest.mark.parametrize("seed", seeds(range(60), 15))
def test_the_bound_holds_wherever_the_search_ends(seed):
    ways, room = case(seed, blocks=6)
    truth = min(everything(ways, room).values(), default=np.inf)
    for cases, slack in ((0, 0.0), (1, 0.1), (3, 0.0), (1000, 0.1)):
        found = compose(ways, room, cases=cases, slack=slack)
        assert found.bound <= truth * (1 + 1e-9) + 1e-9
        assert all(each.seconds >= truth * (1 - 1e-9) for each in found.best)


@pytest.mark.parametrize("seed", [1056, 1308, 2081])
def test_what_is_too_little_better_is_below_the_bound_no_more(seed):
    """Searches that end, and drop what is better by less than their slack."""
    ways, room = case(seed, blocks=4)
    found = compose(ways, room, slack=0.05)
    assert found.bound <= min(everything(ways, room).values()) * (1 + 1e-9)


@pytest.mark.parametrize("seed", seeds(range(20), 8))
def test_any_prices_give_a_bound(seed):
    """Weak duality, and that the relaxation finds the best of them."""
    ways, room = case(seed)
    still = Ways(ways.lanes, ways.kept, 0 * ways.coming)
    truth = min(everything(still, room).values(), default=np.inf)
    best = relaxation(still, room)
    rng = np.random.default_rng(seed)
    for _ in range(20):
        lanes, memories = rng.exponential(1.0, len(room.ends)), rng.exponential(1.0, len(room.free))
        bound = dual(still, room, lanes, memories, np.zeros(len(still))).bound
        assert bound <= truth + 1e-9
        assert best is None or bound <= best.bound + 1e-7


def realistic(seed: int, blocks: int) -> tuple[Ways, Room]:
    """Eighty ways of a block between host, link and accelerator: seconds and bytes trade against each other."""
    rng = np.random.default_rng(seed)
    share = rng.random((80, 2))
    share /= np.maximum(1.0, share.sum(axis=1, keepdims=True))
    host, resident = share[:, 0], share[:, 1]
    streamed = 1 - host - resident
    chain = 9e-3 * host + 0.6e-3 * (1 - host) + rng.random(80) * 1e-4
    lanes = np.stack([chain, 25e-3 * streamed], axis=1)
    size = 4e8
    ways = Ways(lanes, (size * resident)[:, None], (size * streamed)[:, None])
    room = Room(
        blocks=blocks,
        ends=np.array([2e-3, 0.0]),
        weights=np.ones(1),
        phase=np.zeros(2, dtype=np.intp),
        free=np.array([0.35 * blocks * size]),
        buffers=np.full((1, 1), 2.0),
    )
    return ways, room


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (1, 2, 3))])
@pytest.mark.parametrize("blocks", [32, 80])
def test_many_blocks_are_composed_to_within_a_hundredth(seed, blocks):
    found: ComposeResult = compose(*realistic(seed, blocks), slack=1e-3)
    assert found.best[0].seconds <= found.bound * 1.01


def test_nothing_fits():
    ways = Ways(np.ones((2, 1)), np.full((2, 1), 5.0), np.zeros((2, 1)))
    room = Room(3, np.zeros(1), np.ones(1), np.zeros(1, dtype=np.intp), np.array([10.0]), np.ones((1, 1)))
    assert compose(ways, room) == ComposeResult((), np.inf, ())


def test_ways_that_another_one_beats_are_left_out():
    """Of equal ones the first; as many as are compared at a time, and more."""
    asked = np.random.default_rng(1).integers(0, 4, (400, 4)).astype(float)
    ways = Ways(asked[:, :2], asked[:, 2:3], asked[:, 3:])
    beaten = [
        any((other <= mine).all() and ((other < mine).any() or place < row) for place, other in enumerate(asked))
        for row, mine in enumerate(asked)
    ]
    assert list(undominated(ways)) == [row for row, gone in enumerate(beaten) if not gone]


@pytest.mark.parametrize("seed", seeds(range(20), 8))
def test_simple_compositions_are_the_best_of_their_kind(seed):
    """All blocks in one way, or as many as fit in the first, for which nothing comes, and the others in one."""
    ways, room = case(seed)
    ways.coming[0] = 0.0
    truth = everything(ways, room)
    alone, beside = {counts for counts in truth if len(counts) == 1}, set()
    for way in range(1, len(ways)):
        mixed = [counts for counts in truth if [each for each, _ in counts] == [0, way]]
        beside |= {max(mixed, key=lambda counts: counts[0][1])} if mixed else set()
    found = simple(ways, room, 0, 3)
    assert all(truth[each.counts] == pytest.approx(each.seconds) for each in found)
    for kind in (alone, beside):
        own = [each for each in found if (len(each.counts) == 1) == (kind is alone)]
        assert {each.counts for each in own} <= kind
        assert [each.seconds for each in own] == pytest.approx(sorted(truth[each] for each in kind)[:3])


@pytest.mark.parametrize("seed", seeds(range(20), 5))
def test_simple_compositions_with_fewer_resident_blocks_are_those_of_less_room(seed):
    """Of every way beside the first: as many of that as fit, half as many, a quarter, ... one."""
    ways, room = case(seed, blocks=12)
    ways.coming[0] = 0.0
    truth = everything(ways, room)
    beside = set()
    for way in range(1, len(ways)):
        most = max((counts[0][1] for counts in truth if [each for each, _ in counts] == [0, way]), default=0)
        while most:
            beside |= {((0, most), (way, 12 - most))} & set(truth)
            most //= 2
    found = simple(ways, room, 0, len(ways), fewer=True)
    assert {each.counts for each in found if len(each.counts) == 2} == beside
    assert all(truth[each.counts] == pytest.approx(each.seconds) for each in found)
