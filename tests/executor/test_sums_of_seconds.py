"""Rates of a profile and of probes are over sums of seconds, as a step's are: one held-up piece counts as it does
there."""

from collections.abc import Iterator
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import pytest

from helmsman.executor._kernels import Pool
from helmsman.executor.devices import probe
from helmsman.executor.devices.probe import COLUMNS, READ_PIECE, panel_bytes, random_matrix, read_rate, weights_rate
from helmsman.executor.profile.samples import ProcessorSamples
from helmsman.executor.profile.shares import read_shares
from helmsman.lowering.operation import PANEL
from helmsman.schemas.formats import StoredFormat

PIECES: Any = tuple(SimpleNamespace(size=READ_PIECE, held_up=last) for last in (False, False, False, True))


@pytest.fixture
def held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces take a millisecond; the last is held up for seven more."""
    monkeypatch.setattr(probe, "time_read", lambda pool, piece, times: [8e-3 if piece.held_up else 1e-3])


@pytest.mark.usefixtures("held_up")
def test_a_plain_read_is_all_bytes_over_all_seconds() -> None:
    pool: Any = object()
    assert read_rate(pool, PIECES) == pytest.approx(4 * READ_PIECE / 11e-3)


def test_weights_are_read_by_whole_panels(monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe multiplies three panels of the first piece, in 3 ms, and two of the second, which holds two and a half,
    in 6 ms: the rate is five panels over 9 ms."""
    panel = panel_bytes("q4_0")
    products: list[tuple[Any, ...]] = []

    def time_linear(pool: object, fmt: str, weights: list[Any], *shape: int) -> list[float]:
        products.append((fmt, weights[0].size, *shape))
        return [3e-3 if len(products) == 1 else 6e-3]

    def piece(size: int) -> Any:
        return SimpleNamespace(size=size, part=lambda start, size: SimpleNamespace(size=size))

    monkeypatch.setattr(probe, "time_linear", time_linear)
    pool: Any = object()
    rate = weights_rate(pool, "q4_0", [piece(3 * panel), piece(2 * panel + panel // 2)])
    assert rate == pytest.approx(5 * panel / 9e-3)
    assert products == [("q4_0", count * panel, count * PANEL, COLUMNS, 1, 1) for count in (3, 2)]


@pytest.mark.parametrize("fmt", ["f32", "bf16", "q8_0", "q4_0"])
def test_bytes_of_panels_are_what_the_kernel_reads(fmt: StoredFormat) -> None:
    """A matrix of several panels is so many times the bytes of one. (A single row takes the bytes of a whole panel, so
    that a probe that counted rows by them told a rate sixteen times too high.)"""
    for count in (1, 3, 5):
        assert random_matrix(fmt, (count * PANEL, COLUMNS)).size == count * panel_bytes(fmt)
    assert weights_rate(Pool((0,)), fmt, [random_matrix(fmt, (5 * PANEL, COLUMNS))]) > 0


def test_the_share_of_a_product_is_of_the_mean_of_its_runs() -> None:
    """A quarter of the runs takes five times as long as the others: twice as long on average."""

    class Steady:
        def read(self, pool: object) -> float:
            return 1e6

    def run(repeats: int) -> list[float]:
        times: Iterator[float] = cycle((1.0, 1.0, 1.0, 5.0))
        return [next(times) for _ in range(4 * repeats)]

    steady: Any = Steady()
    pool: Any = object()
    measured = read_shares(pool, steady, 10**6, run, 2)
    assert measured.shares == pytest.approx([0.5, 0.5])
    assert measured.reads == [1e6, 1e6]


def test_the_reads_of_a_point_are_one_sample() -> None:
    samples = ProcessorSamples()
    samples.add_reads([5e9], 0.1)
    samples.add_reads([2e9, 6e9], 0.0)
    assert samples.read == pytest.approx([5e9, 3e9])
    assert samples.reads_disturbed == [0.1, 0.0]
