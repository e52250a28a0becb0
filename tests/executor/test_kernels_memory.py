"""Pools, arenas and the copy engine."""

import gc
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from helmsman.executor._kernels import Arena, Buffer, CopyEngine, Event, Pool, pack, packed_size, time_read
from helmsman.executor.system.machine import Machine
from helmsman.schemas.formats import Format


def view(buffer: Buffer) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(memoryview(buffer), np.uint8)


def test_arena_enforces_its_capacity_and_says_who_failed() -> None:
    arena = Arena(4096)
    first = arena.alloc(1000, "first")
    assert (arena.capacity, arena.used, first.size) == (4096, 1000, 1000)
    with pytest.raises(MemoryError, match=r"4000 bytes for the cache: 1000 of 4096"):
        arena.alloc(4000, "the cache")
    assert arena.used == 1000
    arena.alloc(4096 - 1024, "the rest")
    with pytest.raises(MemoryError):
        arena.alloc(1, "one more")


def test_buffers_are_zero_aligned_writable_and_disjoint() -> None:
    arena = Arena(1 << 20)
    buffers = [arena.alloc(size, "piece") for size in (1, 63, 64, 65, 1000)]
    for index, buffer in enumerate(buffers):
        data = view(buffer)
        assert data.ctypes.data % 64 == 0
        assert not data.any()
        data[:] = index + 1
    for index, buffer in enumerate(buffers):
        assert (view(buffer) == index + 1).all()


def test_a_view_outlives_its_arena() -> None:
    data = view(Arena(1 << 20).alloc(1 << 20, "all"))
    gc.collect(0)
    data[:] = 7
    assert int(data.sum()) == 7 << 20


@pytest.mark.parametrize("capacity", [0, -1, 1 << 62])
def test_arena_refuses_absurd_capacities(capacity: int) -> None:
    with pytest.raises(ValueError, match="capacity"):
        Arena(capacity)


def test_pool_refuses_cpus_that_are_not_there() -> None:
    assert Pool([0, 0]).threads == 2
    for cpus in ([], [-1], [0, 100000]):
        with pytest.raises(ValueError, match="CPU"):
            Pool(cpus)


def test_copies_arrive_in_order_at_the_set_rate() -> None:
    arena = Arena(8 << 20)
    size = 2 << 20
    source, target = arena.alloc(size, "source"), arena.alloc(size, "target")
    view(source)[:] = np.random.default_rng(0).integers(0, 256, size, np.uint8)
    rate, latency = 200e6, 1e-3
    engine = CopyEngine(rate, latency, -1)
    begun = time.monotonic()
    tickets = [
        engine.submit(target, 0, source, 0, size // 2),
        engine.submit(target, size // 2, source, size // 2, size // 2),
    ]
    spans = [engine.wait(ticket) for ticket in tickets]
    ended = time.monotonic()
    np.testing.assert_array_equal(view(target), view(source))
    expected = latency + size / 2 / rate
    (start, end), (later, last) = spans
    assert begun <= start < end <= later < last <= ended
    assert expected <= end - start and 2 * expected <= last - start, "no faster; how much slower, the machine decides"


@pytest.mark.nightly
@pytest.mark.parametrize("size", [0, 1 << 20])
def test_copies_take_little_longer_than_is_set(size: int) -> None:
    arena, rate, latency = Arena(4 << 20), 200e6, 2e-3
    source, target = arena.alloc(1 << 20, "source"), arena.alloc(1 << 20, "target")
    engine = CopyEngine(rate, latency, -1)
    spans = [engine.wait(engine.submit(target, 0, source, 0, size)) for _ in range(9)]
    assert min(end - start for start, end in spans) < 1.02 * (latency + size / rate)


@pytest.mark.nightly
def test_what_a_busy_processor_delays_is_caught_up() -> None:
    """The engine's processor computes all the while, and gives it a turn every few milliseconds."""
    copies, size, rate, latency = 200, 1 << 20, 1e9, 20e-6
    arena, cpu = Arena(4 * size), Machine.this().cpus[-1]
    source, target, rest = (arena.alloc(size, what) for what in ("source", "target", "rest"))
    engine, pool = CopyEngine(rate, latency, cpu), Pool([cpu])
    tickets = [engine.submit(target, 0, source, 0, size) for _ in range(copies)]
    nominal = copies * (latency + size / rate)
    begun = time.monotonic()
    while time.monotonic() < begun + nominal:
        time_read(pool, rest, 20)
    first, last = engine.wait(tickets[0]), engine.wait(tickets[-1])
    assert nominal <= last[1] - first[0] < 1.05 * nominal


COPYING = """
import os, resource, sys
from helmsman.executor._kernels import Arena, CopyEngine
if sys.argv[1] == "refused":
    resource.setrlimit(resource.RLIMIT_RTPRIO, (0, 0))
    if os.geteuid() == 0:
        os.setuid(65534)
def tasks():
    return set(map(int, os.listdir("/proc/self/task")))
try:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
except PermissionError:
    pass
permitted = os.sched_getscheduler(0) == os.SCHED_FIFO
os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
buffer, cpus = Arena(1 << 20).alloc(1 << 18, "buffer"), os.sched_getaffinity(0)
memoryview(buffer)[:3] = b"abc"
size = 1 << 17  # more than what those who wait move themselves
def copying(*place):
    before, engine = tasks(), CopyEngine(1e9, 1e-4, *place)
    start, end = engine.wait(engine.submit(buffer, size, buffer, 0, size))
    assert bytes(memoryview(buffer)[size:size + 3]) == b"abc" and end - start >= 1e-4 + size / 1e9
    (thread,) = tasks() - before
    return engine, os.sched_getparam(thread).sched_priority, os.sched_getaffinity(thread)
_, least, _ = copying(-1)
_, ahead, there = copying(max(cpus), True)
assert there == ({max(cpus)} if permitted else cpus)
print(permitted, 0 < least < ahead)
"""
"""Whether a thread may run before all others of its core, and whether those that copy do, some before others."""


@pytest.mark.parametrize("asked", ["as it is", "refused"])
def test_copies_take_precedence_where_that_is_permitted_and_work_where_it_is_not(asked: str) -> None:
    """In a process of its own, which may give up the right to it."""
    words = [sys.executable, "-c", COPYING, asked]
    permitted, preceding = subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()
    assert permitted == preceding
    assert asked == "as it is" or permitted == "False"


def test_small_copies_are_moved_by_whoever_waits_for_them() -> None:
    """The engine's thread, which shares a processor with an accelerator's, hardly runs."""
    copies, size = 200, 64
    arena, before = Arena(1 << 20), set(Path("/proc/self/task").iterdir())
    source, target = (arena.alloc(copies * size, what) for what in ("source", "target"))
    view(source)[:] = np.random.default_rng(0).integers(0, 256, copies * size, np.uint8)
    engine = CopyEngine(1e12, 0.0, -1)
    (thread,) = set(Path("/proc/self/task").iterdir()) - before
    begin, done = ([Event() for _ in range(copies)] for _ in range(2))
    for i in range(copies):
        engine.submit(target, i * size, source, i * size, size, [begin[i]], done[i])
    time.sleep(0.01)
    switches = _switches(thread)
    for i in range(copies):
        begin[i].signal()
        done[i].wait()
        np.testing.assert_array_equal(view(target)[i * size : (i + 1) * size], view(source)[i * size : (i + 1) * size])
    assert _switches(thread) - switches < copies / 2


def _switches(thread: Path) -> int:
    """How often a thread of this process has gone to sleep."""
    status = (thread / "status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("voluntary")))


def test_a_small_copy_that_nobody_waits_for_takes_its_time_and_is_moved() -> None:
    """Its seconds are the link's, however late somebody looks, and so begins the next one."""
    buffer, size, rate, latency = Arena(1 << 16).alloc(1 << 15, "buffer"), 4096, 1e8, 1e-4
    engine, begin, first, second = CopyEngine(rate, latency, -1), Event(), Event(), Event()
    times = np.zeros((2, 2))
    engine.submit(buffer, size, buffer, 0, size, [begin], first, times[0])
    engine.submit(buffer, 2 * size, buffer, 0, size, (), second, times[1])
    begin.signal()
    deadline = time.monotonic() + 10
    while not times[1, 1] and time.monotonic() < deadline:
        time.sleep(0.01)
    expected = latency + size / rate
    assert first.done and second.done
    assert begin.time == times[0, 0] and times[0, 1] == times[1, 0]
    assert ((times[:, 1] - times[:, 0]) >= expected * (1 - 1e-6)).all()


def test_an_empty_copy_takes_the_latency() -> None:
    buffer = Arena(64).alloc(64, "buffer")
    engine = CopyEngine(1e9, 2e-3, -1)
    start, end = engine.wait(engine.submit(buffer, 0, buffer, 0, 0))
    assert end - start >= 2e-3


def test_many_copies_queue_and_all_finish() -> None:
    arena = Arena(1 << 20)
    source, target = arena.alloc(4096, "source"), arena.alloc(4096, "target")
    view(source)[:] = np.arange(4096) % 251
    engine = CopyEngine(1e12, 0.0, -1)
    tickets = [engine.submit(target, i, source, i, 1) for i in range(4096)]
    assert tickets == sorted(set(tickets))
    engine.wait(tickets[-1])
    np.testing.assert_array_equal(view(target), view(source))
    assert engine.wait(tickets[0])[1] <= engine.wait(tickets[-1])[0]


def test_an_engine_with_copies_under_way_can_be_dropped() -> None:
    """It does not go on to the others: the last of 600 copies, of 0.1 s each, has not been done."""
    copies, size = 600, 1 << 10
    arena = Arena(2 * copies * size)
    source, target = arena.alloc(copies * size, "source"), arena.alloc(copies * size, "target")
    view(source)[:], view(target)[:] = 1, 0
    engine = CopyEngine(size / 0.1, 0.0, Machine.this().cpus[0])
    for copy in range(copies):
        engine.submit(target, copy * size, source, copy * size, size)
    del engine
    assert not view(target)[-size:].any()


@pytest.mark.parametrize("fmt", ["f32", "f16"])
@pytest.mark.parametrize(("rows", "columns"), [(16, 8), (37, 96)])
def test_rows_of_a_packed_table_are_looked_up(fmt: Format, rows: int, columns: int) -> None:
    """Ids are read when the copy begins; one that the table lacks leaves its place alone."""
    dtype: type[np.generic] = np.float32 if fmt == "f32" else np.float16
    values = np.random.default_rng(3).standard_normal((rows, columns)).astype(dtype)
    arena = Arena(1 << 20)
    size = packed_size(fmt, rows, columns)
    table, ids = arena.alloc(size, "table"), arena.alloc(64, "ids")
    pack(values, fmt, table, fmt, rows, columns)
    target = arena.alloc(7 * values[0].nbytes + 64, "rows")
    chosen = [rows - 1, 0, 3, 3, rows, -1, 15]
    given = arena.alloc(28, "chosen ids")
    view(given)[:] = np.array(chosen, np.int32).view(np.uint8)
    engine, first, ready = CopyEngine(1e9, 1e-3, -1), CopyEngine(1e9, 5e-3, -1), Event()
    first.submit(ids, 0, given, 0, 28, (), ready)
    start, end = engine.wait(engine.submit_lookup(target, 64, table, fmt, rows, columns, ids, 7, [ready]))
    assert end - start >= 1e-3 + 7 * values[0].nbytes / 1e9
    found = view(target)[64:].view(dtype).reshape(7, columns)
    expected = [values[row] if 0 <= row < rows else np.zeros(columns, dtype) for row in chosen]
    np.testing.assert_array_equal(found, expected)
    with pytest.raises(ValueError, match="ids has"):
        engine.submit_lookup(target, 0, table, fmt, rows, columns, ids, 17)
    with pytest.raises(ValueError, match="do not fit"):
        engine.submit_lookup(target, 65, table, fmt, rows, columns, ids, 7)
    with pytest.raises(ValueError, match="table has"):
        engine.submit_lookup(target, 0, table, fmt, rows + 16, columns, ids, 1)


def test_copy_engine_refuses_bad_ranges_tickets_and_settings() -> None:
    buffer = Arena(64).alloc(64, "buffer")
    engine = CopyEngine(1e9, 0.0, -1)
    for target_offset, source_offset, size in ((1, 0, 64), (0, 65, 0), (0, 0, 65), (0, -1, 1), (1 << 39, 0, 1)):
        with pytest.raises(ValueError, match=r"do not fit|must be between"):
            engine.submit(buffer, target_offset, buffer, source_offset, size)
    with pytest.raises(ValueError, match="ticket"):
        engine.wait(0)
    for rate, latency, cpu in ((0.0, 0.0, -1), (float("nan"), 0.0, -1), (1e9, -1.0, -1), (1e9, 0.0, 100000)):
        for ahead in (False, True):
            with pytest.raises(ValueError, match="must"):
                CopyEngine(rate, latency, cpu, ahead)
