"""Joint reads and products count what pools do while all of them do."""

from os import sched_getaffinity
from threading import Barrier, Event
from types import SimpleNamespace
from typing import Any

import pytest

from helmsman.executor._kernels import Arena, Pool
from helmsman.executor.devices import probe
from helmsman.schemas.figures import LEAST_SHARE, MOST_SHARE

SIZE, TOGETHER, ALONE = 1000, 2.0, 1.0
PIECES = 4
"""Of each pool."""


class Reader:
    """A stub of `time_read` for two pools: the quick one waits, before its last piece, until the slow one has read
    one; the slow one goes on to its second only when the quick one is through."""

    def __init__(self) -> None:
        self.read = {"quick": 0, "slow": 0}
        self.slow_has_read, self.quick_is_through = Event(), Event()

    def __call__(self, pool: str, piece: object, repeats: int) -> list[float]:
        self.read[pool] += 1
        if pool == "slow" and self.read[pool] == 2:
            self.slow_has_read.set()
            self.quick_is_through.wait(10)
            return [ALONE]
        if pool == "quick" and self.read[pool] == PIECES:
            self.slow_has_read.wait(10)
        return [TOGETHER / 4 if pool == "quick" else TOGETHER]


class Ended(Event):
    """Tells the slow pool that the quick one is through."""

    reader: Reader

    def set(self) -> None:
        super().set()
        self.reader.quick_is_through.set()


def test_what_a_pool_reads_after_another_is_through_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader()

    def event() -> Ended:
        ended = Ended()
        ended.reader = reader
        return ended

    monkeypatch.setattr(probe, "time_read", reader)
    monkeypatch.setattr(probe, "Event", event)
    pools: Any = ["quick", "slow"]
    pieces: Any = [SimpleNamespace(size=SIZE)] * (2 * PIECES)
    rate = probe.joint_read_rate(pools, pieces)
    assert rate == pytest.approx(SIZE / (TOGETHER / 4) + SIZE / TOGETHER)
    assert reader.read == {"quick": PIECES, "slow": 2}


def test_all_pools_read_on_until_the_slowest_has_read_a_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = {"quick": 0, "slow": 0}
    quick_is_through = Event()

    def time_read(pool: str, piece: object, repeats: int) -> list[float]:
        reads[pool] += 1
        if pool == "quick" and reads[pool] > PIECES:
            quick_is_through.set()
        if pool == "slow":
            quick_is_through.wait(10)
        return [TOGETHER]

    monkeypatch.setattr(probe, "time_read", time_read)
    pools: Any = ["quick", "slow"]
    pieces: Any = [SimpleNamespace(size=SIZE)] * (2 * PIECES)
    rate = probe.joint_read_rate(pools, pieces)
    assert rate == pytest.approx(2 * SIZE / TOGETHER)
    assert reads["quick"] > PIECES


class Multiplier:
    """A stub of `time_linear` for two pools that take a second for a product alone, and two while both multiply; the
    first product of each call takes nine more."""

    def __init__(self) -> None:
        self.at_once = False
        self.matrices: dict[str, list[list[object]]] = {"a": [], "b": []}

    def __call__(self, pool: str, fmt: str, matrices: list[object], *shape: int) -> list[float]:
        self.matrices[pool].append(matrices)
        seconds = 2.0 if self.at_once else 1.0
        return [seconds + 9.0, *[seconds] * (shape[-1] - 1)]


def test_what_pools_keep_is_their_rate_together_over_that_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the first product of every call; pools take equal matrices, each from another one on."""
    multiplier = Multiplier()

    class Started(Barrier):
        def wait(self, timeout: float | None = None) -> int:
            multiplier.at_once = True
            return super().wait(timeout)

    monkeypatch.setattr(probe, "time_linear", multiplier)
    monkeypatch.setattr(probe, "Barrier", Started)
    pools: Any = ["a", "b"]
    assert probe.JointProductProbe().kept(pools, 3) == pytest.approx(0.5)
    calls = multiplier.matrices
    assert min(map(len, calls.values())) >= 1 + 1
    first, second = (calls[pool][0] for pool in pools)
    assert len(set(map(id, first))) == probe.JOINT_MATRICES and second == [*first[1:], first[0]]


def test_products_run_on_threads_of_this_machine() -> None:
    """Whatever these keep: each pool computes, alone and beside the other."""
    kept = probe.JointProductProbe().kept([Pool([cpu]) for cpu in sorted(sched_getaffinity(0))[:2]], 1)
    assert LEAST_SHARE < kept < MOST_SHARE


def test_pieces_of_many_buffers_are_of_all_of_them() -> None:
    arena = Arena(4 * probe.READ_PIECE + 4096)
    large, small = arena.alloc(3 * probe.READ_PIECE + 640, "large"), arena.alloc(1280, "small")
    sizes = [piece.size for piece in probe.cut([large, small], 1 << 40)]
    assert sizes == [*[probe.READ_PIECE] * 3, 640, 1280]
    assert [piece.size for piece in probe.cut([large, small], 2 * probe.READ_PIECE)] == [probe.READ_PIECE] * 2 + [1280]
    assert probe.cut([], 1) == []


def test_every_reader_is_dealt_as_many_pieces() -> None:
    assert probe.dealt([[1, 2, 3], [4, 5]]) == [1, 4, 2, 5]


@pytest.mark.parametrize("seconds", [0.001, 0.3])
def test_products_are_probed_for_a_tenth_of_a_second_and_over_all_of_their_time(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """The first of every two products takes three times as long; two matrices are multiplied once at least."""
    spent: list[float] = []

    def time_linear(pool: object, fmt: str, matrices: list[object], *shape: object) -> list[float]:
        times = [seconds * (3.0 if place % 2 == 0 else 1.0) for place in range(int(str(shape[-2])))]
        spent.extend(times)
        return times

    monkeypatch.setattr(probe, "time_linear", time_linear)
    pool: Any = None
    matrices: Any = ["a", "b"]
    rate = probe.product_rate(pool, "bf16", matrices, "bf16")
    rows, columns = probe.PRODUCT
    assert rate == pytest.approx(len(spent) * 2 * probe.PRODUCT_TOKENS * rows * columns / sum(spent))
    assert len(spent) >= 2 and (sum(spent) >= probe.PRODUCTS_S or len(spent) == 2)
    assert sum(spent) < 1.1 * max(probe.PRODUCTS_S, 4 * seconds)
