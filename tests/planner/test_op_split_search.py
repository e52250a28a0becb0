"""The search of operation splits against the published tables, and against trying everything."""

from dataclasses import replace
from random import Random
from time import process_time

import numpy as np
import pytest
from lowered import question
from op_tables import HOST, MS, OPS, published, random_table, try_everything, try_one
from together import together

from helmsman.planner.strategies.op_split.layer_table import (
    COLUMNS,
    Unit,
    chunked,
    layer_table,
    operations,
    storable,
)
from helmsman.planner.strategies.op_split.options import SearchOptions
from helmsman.planner.strategies.op_split.search import search
from helmsman.schemas.errors import BadInputError, InfeasibleError

PRINTED = SearchOptions(printed=True)
EVERYTHING = SearchOptions(compress=(False, True), storage=True)


def best(table=None, **options):
    return search(table or published(), SearchOptions(printed=True, **options)).best


def host_ops(split, table):
    units = table.units
    return [u.op for u in units[: split.start]], [u.op for u in units[split.stop :]]


@pytest.mark.parametrize(
    ("chunks", "options", "ms", "start", "stop"),
    [
        ({}, {"offload": False}, 81.258, 0, 11),
        ({}, {}, 47.546, 0, 9),
        ({}, {"offload": False, "compress": (True,)}, 72.392, 0, 11),
        ({}, {"compress": (True,)}, 44.105, 4, 10),
        ({}, {"compress": (False, True)}, 44.105, 4, 10),
    ],
)
def test_published_tables(chunks, options, ms, start, stop):
    split = best(chunked(published(), chunks), **options)
    assert split.seconds == pytest.approx(ms * MS, rel=1e-3)
    assert (split.start, split.stop) == (start, stop)


def test_best_published_splits_name_the_operations_of_the_errata():
    table = published()
    assert host_ops(best(), table) == ([], ["FC.0", "FC.1"])
    assert host_ops(best(compress=(True,)), table) == (["LN.0", "Q", "K", "V"], ["FC.1"])


@pytest.mark.parametrize(("chunks", "ms", "start"), [({}, 68.615, 4), ({"Scores": 8}, 60.943, 8)])
def test_published_single_split_points(chunks, ms, start):
    """The host first, the accelerator from there on (Fig 14)."""
    table = chunked(published(), chunks)
    found, count = search(table, PRINTED), len(table.units)
    least = min((found.at(first, count) for first in range(count + 1)), key=lambda split: split.seconds)
    assert least.seconds == pytest.approx(ms * MS, rel=1e-3)
    assert least.start == start


def test_exposed_accelerator_time_is_added_to_the_suffix_plan():
    """E-PARK-05: 47.409 ms of host and 2.36 ms of accelerator follow each other; the bound says 47.546."""
    split = search(published(), SearchOptions()).at(0, 9)
    assert split.seconds == pytest.approx((47.409 + 2.36) * MS, rel=1e-9)


def test_all_splits_of_eleven_operations_are_78():
    found = search(published(), PRINTED)
    assert len(found.start) == 78
    assert found.at(3, 3).seconds == pytest.approx(sum(HOST) * MS)
    assert len(found.ranked(1000)) == 66 + 1


def test_the_curve_over_single_split_points_falls_and_then_rises():
    """PARK-33."""
    found = search(chunked(published(), dict.fromkeys(OPS, 8)), PRINTED)
    totals = [found.at(first, 88).seconds for first in range(89)]
    falling = np.diff(totals) <= 1e-12
    assert not falling[falling.argmin() :].any()


@pytest.mark.parametrize("seeds", [range(150), pytest.param(range(150, 500), marks=pytest.mark.nightly)], ids=str)
@pytest.mark.parametrize("printed", [True, False])
def test_equals_trying_everything(printed, seeds):
    for seed in seeds:
        rng = Random(f"{seed}-{printed}")
        table = random_table(rng, whole_numbers=rng.random() < 0.3)
        compress = rng.choice([(False,), (True,), (False, True), (True, False)])
        batches, storage = rng.choice([1, 1, 2, 3, 5]), rng.random() < 0.6
        found = search(table, SearchOptions(batches, printed, compress, storage))
        tried = try_everything(table, batches, printed, compress, storage)
        first = min(tried, key=lambda one: one.key(table, compress))
        split = found.best
        assert (split.start, split.stop) == (first.start, first.stop), seed
        assert (split.compressed, split.from_storage) == (first.compressed, first.stored), seed
        lanes = (split.seconds, split.cpu, split.h2d, split.decompress, split.s2d, split.gpu)
        expected = (first.total, first.cpu, first.h2d, first.decompress, first.s2d, first.gpu)
        assert lanes == pytest.approx(expected, rel=1e-9, abs=1e-9), seed


def test_every_range_has_its_own_best_configuration():
    for seed in range(40):
        table = random_table(Random(seed))
        found = search(table, EVERYTHING)
        tried = try_everything(table, 1, False, (False, True), True)
        for start, stop, total in zip(found.start, found.stop, found.lanes.total, strict=True):
            least = min(one.total for one in tried if (one.start, one.stop) == (start, stop))
            assert total == pytest.approx(least, rel=1e-9, abs=1e-9)


def test_only_sets_that_cannot_win_are_dropped():
    """The search prices less than everything and finds the same, with storage as published and four times faster."""
    for faster, part in ((1.0, 0.8), (4.0, 1.0)):
        table = published(faster)
        found = search(table, EVERYTHING)
        tried = try_everything(table, 1, False, (False, True), True)
        assert found.evaluated <= len(tried) * part
        assert found.best.seconds == pytest.approx(min(one.total for one in tried), rel=1e-12)
        assert found.best.from_storage


def test_caches_never_come_from_storage():
    """E-PARK-16."""
    assert storable(published()) == ("Q", "K", "V", "Output", "FC.0", "FC.1")


def test_weights_from_storage_leave_link_and_unpacking():
    table = published()
    plain = try_one(table, 0, 11, True, (), 1, True)
    stored = try_one(table, 0, 11, True, ("Q",), 1, True)
    split = search(
        published(storage_devices_faster=1e6),
        SearchOptions(printed=True, compress=(True,), storage=True, offload=False),
    ).best
    assert split.from_storage == storable(table)
    assert stored.h2d == pytest.approx(plain.h2d - 1.083 * MS)
    assert split.h2d == pytest.approx((2 * 4.110 + 0.002) * MS)
    assert split.decompress == pytest.approx((0.001 + 4.110 + 2 * 10.963) * MS, rel=1e-3)


def test_ranked_is_in_order_and_starts_with_the_best():
    found = search(published(), EVERYTHING)
    ranked = found.ranked(10)
    assert ranked[0] == found.best
    assert [s.seconds for s in ranked] == sorted(s.seconds for s in ranked)
    assert len({(s.start, s.stop) for s in ranked}) == 10


def test_ties_go_to_balance_then_the_lowest_range_then_the_first_set():
    equal = {"host": (1.0, 1.0, 1.0, 1.0), "weights": (1.0, 1.0, 1.0, 1.0)}
    split = search(layer_table(("a", "b", "c", "d"), equal), PRINTED).best
    assert (split.start, split.stop) == (0, 2)
    stored = layer_table(("a", "b"), {"host": (9.0, 9.0), "weights": (2.0, 2.0), "storage": (2.0, 2.0)})
    assert search(stored, replace(PRINTED, storage=True)).best.from_storage == ("a",)


def test_what_does_not_fit_is_not_chosen():
    fits = np.ones((12, 12), dtype=bool)
    fits[0, 9] = False
    found = search(published(), replace(PRINTED, feasible=fits))
    assert (found.best.start, found.best.stop) != (0, 9)
    assert (0, 9) not in {(s.start, s.stop) for s in found.ranked(100)}


def test_feasibility_may_depend_on_compression_and_storage():
    """Packed only, and only with FC.1 in storage, as a memory model could say."""

    def fits(start, stop, compressed, stored):
        return np.full(len(start), compressed and "FC.1" in stored)

    found = search(published(64.0), replace(EVERYTHING, feasible=fits))
    assert found.best.compressed
    assert "FC.1" in found.best.from_storage
    tried = [t for t in try_everything(published(64.0), 1, False, (True,), True) if "FC.1" in t.stored]
    assert found.best.seconds == pytest.approx(min(t.total for t in tried))


def test_nothing_feasible_is_said():
    nothing = np.zeros((12, 12), dtype=bool)
    with pytest.raises(InfeasibleError, match="no operation split is feasible"):
        _ = search(published(), replace(PRINTED, feasible=nothing)).best


def test_the_host_or_the_accelerator_alone():
    assert len(search(published(), replace(PRINTED, offload=False)).start) == 1
    assert search(published(), PRINTED).at(0, 0).gpu == 0.0


def test_chunks_sum_to_the_operation():
    table = chunked(published(), {"Scores": 8, "FC.0": (0.5, 0.25, 0.25)})
    assert len(table.units) == 11 + 7 + 2
    assert operations(table) == OPS
    assert table.units[4] == Unit("Scores", 0, 8)
    for name in COLUMNS:
        assert sum(getattr(table, name)) == pytest.approx(sum(getattr(published(), name)))
    assert table.host[-4:-1] == pytest.approx((11.608 * MS, 5.804 * MS, 5.804 * MS))


@together("value", [float("nan"), -1.0, float("inf")])
@together("column", COLUMNS)
def test_what_is_no_latency_is_refused(column, value):
    with pytest.raises(BadInputError, match=rf"{column}\.b.*not a latency"):
        layer_table(("a", "b"), {column: (0.0, value)})


@together(
    ("make", "message"),
    [
        (lambda: layer_table((), {}), "at least one operation"),
        (lambda: layer_table(("a", "b", "a"), {}), "every operation occurs once"),
        (lambda: layer_table(("a",), {"hots": (1.0,)}), "hots: not a column"),
        (lambda: layer_table(("a", "b"), {"host": (1.0,)}), "host: wrong number of latencies"),
        (lambda: layer_table(("a",), {"storage": (1.0,)}), "without weights cannot come from storage"),
        (lambda: replace(layer_table(("a",), {}), units=(Unit("a", 1, 2),)), "in order and complete"),
        (lambda: chunked(published(), {"FC.7": 2}), "no whole operation"),
        (lambda: chunked(published(), {"Q": 0}), "at least one chunk"),
        (lambda: chunked(published(), {"Q": (0.5, 0.6)}), "sum to 1"),
        (lambda: chunked(chunked(published(), {"Q": 2}), {"Q": 2}), "no whole operation"),
        (lambda: SearchOptions(batches=0), "at least one batch"),
        (lambda: SearchOptions(compress=()), "at least one"),
        (lambda: search(published(), replace(PRINTED, feasible=np.ones((11, 11), dtype=bool))), "shape"),
        (lambda: search(published(), PRINTED).at(3, 12), "not a range"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(BadInputError, match=message):
        make()


def test_too_many_sets_of_stored_operations_are_refused(monkeypatch):
    monkeypatch.setattr("helmsman.planner.strategies.op_split.search.MOST_SETS", 1024)
    ops = tuple(f"op{k}" for k in range(15))
    fast = {"host": (9.0,) * 15, "weights": (5.0,) * 15, "storage": (0.01,) * 15}
    with pytest.raises(BadInputError, match=r"nvme: 15 operations.*more than 1024 sets.*leave `nvme` out"):
        search(layer_table(ops, fast), SearchOptions(storage=True))


@pytest.mark.nightly
@pytest.mark.parametrize("batches", [1, 4])
def test_eleven_operations_in_eight_chunks_are_searched_quickly(batches):
    """About 35 ms on one core; the limit is five times the bar of 50 ms, for busy machines."""
    table = chunked(published(storage_devices_faster=4.0), dict.fromkeys(OPS, 8))
    assert _seconds(table, replace(EVERYTHING, batches=batches)) < 0.25


@pytest.mark.nightly
def test_two_hundred_operations_are_searched_quickly():
    """About 5 ms on one core."""
    rng = Random(1)
    columns = {name: tuple(rng.random() for _ in range(200)) for name in COLUMNS}
    table = layer_table(tuple(f"op{k}" for k in range(200)), columns)
    assert _seconds(table, SearchOptions(compress=(False, True))) < 0.25


@pytest.mark.nightly
@pytest.mark.parametrize("batches", [1, 4])
def test_what_a_plan_searches_is_searched_quickly(batches):
    """With crossings, shared memories and busy links: eight operations can be divided in eight. Same bar and limit."""
    chunks = dict.fromkeys(("q", "k", "v", "scores", "wv", "o", "up", "down"), 8)
    storage = ("nvme0", "nvme1", "nvme2", "nvme3")
    asked = question("opt-30b", "a4000-7950x", 48 // batches, batches, chunks=chunks, compress="best", storage=storage)
    assert _seconds(asked.table, asked.search_options) < 0.25


def _seconds(table, options):
    def once():
        begin = process_time()
        search(table, options)
        return process_time() - begin

    return min(once() for _ in range(3))
