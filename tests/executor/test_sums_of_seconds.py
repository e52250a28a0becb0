"""Rates of a profile and of probes are over sums of seconds, as a step's are: one held-up piece counts as it does
there."""

from collections.abc import Iterator
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import pytest

from helmsman.executor import probe
from helmsman.executor.probe import READ_PIECE, read_rate
from helmsman.executor.profile.processor import _shares
from helmsman.executor.profile.samples import ProcessorSamples

PIECES: Any = tuple(SimpleNamespace(size=READ_PIECE, held_up=last) for last in (False, False, False, True))


@pytest.fixture
def held_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces take a millisecond; the last is held up for seven more."""
    monkeypatch.setattr(probe, "time_read", lambda pool, piece, times: [8e-3 if piece.held_up else 1e-3])


@pytest.mark.usefixtures("held_up")
def test_a_plain_read_is_all_bytes_over_all_seconds() -> None:
    pool: Any = object()
    assert read_rate(pool, PIECES) == pytest.approx(4 * READ_PIECE / 11e-3)


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
    found = _shares(pool, steady, 10**6, run, 2)
    assert found.shares == pytest.approx([0.5, 0.5])
    assert found.reads == [1e6, 1e6]


def test_the_reads_of_a_point_are_one_sample() -> None:
    samples = ProcessorSamples()
    samples.add_reads([5e9], 0.1)
    samples.add_reads([2e9, 6e9], 0.0)
    assert samples.read == pytest.approx([5e9, 3e9])
    assert samples.reads_disturbed == [0.1, 0.0]
