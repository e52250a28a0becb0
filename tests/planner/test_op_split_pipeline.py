"""The closed forms of a layer's period against the chain executed task by task."""

from random import Random

import numpy as np
import pytest
from op_events import Chain
from op_tables import published, random_table, try_one

from helmsman.planner.strategies.op_split.layer_table import layer_table, storable
from helmsman.planner.strategies.op_split.options import SearchOptions
from helmsman.planner.strategies.op_split.pipeline import Items, flow_shop
from helmsman.planner.strategies.op_split.search import search

LAYERS = 40


def random_case(seed, compressed=None):
    """A table and what is done with it: start, stop, compressed, stored operations, batches."""
    rng = Random(seed)
    table = random_table(rng, most=5, whole_numbers=seed % 2 == 0)
    start = rng.randint(0, len(table.units))
    stop = rng.randint(start, len(table.units))
    stored = tuple(op for op in storable(table) if rng.random() < 0.4)
    packed = rng.random() < 0.5 if compressed is None else compressed
    return table, start, stop, packed, stored, rng.choice([1, 1, 2, 3, 4])


@pytest.mark.parametrize("seeds", [range(150), range(150, 300)], ids=["first", "second"])
def test_the_period_of_the_chain_is_the_closed_form(seeds):
    for seed in seeds:
        case = random_case(seed)
        expected = try_one(*case, printed=False).total
        assert Chain(*case).period(LAYERS) == pytest.approx(expected, rel=1e-9, abs=1e-12), seed


def test_the_search_reports_the_period_of_the_chain():
    """The same through the vectorised closed form: the best split of a table takes what the chain takes."""
    for seed in range(60):
        table, *_, batches = random_case(seed)
        split = search(table, SearchOptions(batches=batches, compress=(False, True), storage=True)).best
        chain = Chain(table, split.start, split.stop, split.compressed, split.from_storage, batches)
        assert chain.period(LAYERS) == pytest.approx(split.seconds, rel=1e-9, abs=1e-12), seed


def test_without_compression_two_buffers_suffice():
    """Fetching as soon as a buffer is free gains nothing over fetching when the layer before starts."""
    for seed in range(60):
        case = random_case(seed, compressed=False)
        expected = try_one(*case, printed=False).total
        assert Chain(*case, fetch="buffer").period(LAYERS) == pytest.approx(expected, rel=1e-9, abs=1e-12), seed


def test_with_compression_the_closed_form_is_an_upper_bound_for_two_buffers():
    """Unpacking of a layer then starts during the layer before, hiding the first transfer and idle link: L' is safe."""
    lower = []
    for seed in range(60):
        case = random_case(seed, compressed=True)
        expected = try_one(*case, printed=False).total
        lower.append(Chain(*case, fetch="buffer").period(LAYERS) - expected)
    assert max(lower) <= 1e-9
    assert sum(difference < -1e-9 for difference in lower) <= len(lower) // 5


def test_the_host_must_take_batches_in_turn():
    """All prefixes after all suffixes leaves host and accelerator waiting for each other: 3 + 4 + 4, not 4 + 4."""
    table = layer_table(("a", "b"), {"host": (3.0, 9.0), "accelerator": (0.0, 4.0), "weights": (1.0, 1.0)})
    assert Chain(table, 1, 2, batches=2).period(LAYERS) == pytest.approx(8.0)
    assert Chain(table, 1, 2, batches=2, cpu="layer").period(LAYERS) == pytest.approx(11.0)


def test_published_suffix_plan_in_the_chain():
    """E-PARK-05: 49.769 ms against the bound of 47.546."""
    assert Chain(published(), 0, 9).period(LAYERS) == pytest.approx(49.769e-3, rel=1e-9)
    assert Chain(published(), 4, 11).period(LAYERS) == pytest.approx(68.615e-3, rel=1e-9)


def test_several_batches_move_weights_once_and_caches_alone():
    """Eq. 14 with E-PARK-04: W + nK + (n-1)G, host n C; no KV moves when attention stays on the host."""
    table = layer_table(
        ("q", "attention"),
        {"host": (1.0, 2.0), "accelerator": (0.5, 0.25), "weights": (8.0, 0.0), "cache": (0.0, 3.0)},
    )
    found = search(table, SearchOptions(batches=3, printed=True))
    both, linear = found.at(0, 2), found.at(0, 1)
    assert (both.h2d, both.cpu) == (8.0 + 3 * 3.0 + 2 * 0.75, 0.0)
    assert (linear.h2d, linear.cpu) == (8.0 + 2 * 0.5, 3 * 2.0)
    chained = search(table, SearchOptions(batches=3))
    assert chained.at(0, 2).seconds == 8.0 + 3 * 3.0 + 2 * 0.75
    assert chained.at(0, 1).seconds == 8.0


def test_flow_shop_is_the_recurrence():
    """finish_k = max(arrive_k, finish_{k-1}) + D_k over the packed items of every range (E-PARK-03)."""
    for seed in range(50):
        table = random_table(Random(seed))
        n = len(table.units)
        start, stop = np.triu_indices(n + 1)
        columns = (table.weights_q, table.cache_q, table.decompress_weights, table.decompress_cache)
        finished = flow_shop(Items(*(np.array(column) for column in columns)), start, stop)
        expected = [try_one(table, i, j, True, (), 1, True).decompress for i, j in zip(start, stop, strict=True)]
        assert finished == pytest.approx(np.array(expected), rel=1e-12, abs=1e-12)


def test_eq_8_is_short_where_the_first_operation_has_no_weights():
    """E-PARK-03: 71.311 ms printed, 72.392 ms exact."""
    split = search(published(), SearchOptions(printed=True, compress=(True,), offload=False)).best
    eq_8 = published().weights_q[0] + sum(published().decompress_weights) + sum(published().decompress_cache)
    assert eq_8 == pytest.approx(71.311e-3, rel=1e-5)
    assert split.decompress == pytest.approx(72.392e-3, rel=1e-3)
