"""Figures of a whole profile: moments in which others took much do not count where there are others."""

from collections.abc import Iterator

import pytest

from helmsman.executor.profile.quality import Watch
from helmsman.executor.profile.spread_samples import SpreadSamples
from helmsman.executor.system.interference import CpuTimes, Moment


def watch(shares: list[float]) -> Watch:
    """Return a watch whose clock gives pairs of moments 1 s apart; other processes take such a share of each second of
    the one processor."""

    def moments() -> Iterator[Moment]:
        clock = busy = 0.0
        for share in shares:
            yield Moment(clock, CpuTimes(busy, clock, 0.0))
            clock, busy = clock + 1.0, busy + share
            yield Moment(clock, CpuTimes(busy, clock, 0.0))

    ticking = moments()
    return Watch(now=lambda: next(ticking))


def taken(shares: list[float]) -> SpreadSamples:
    """Return the samples 0, 1, 2, ... during which other processes took such shares of the time."""
    values = iter(range(len(shares)))
    samples = SpreadSamples(watch(shares), lambda: float(next(values)))
    for _ in shares:
        samples.add()
    return samples


def test_what_others_disturbed_does_not_count() -> None:
    samples = taken([0.0, 0.5, 0.03])
    assert samples.undisturbed == [0.0, 2.0]
    assert samples.disturbed == pytest.approx(0.01)  # a clock tick of each second is subtracted


def test_where_all_are_disturbed_all_count_and_say_so() -> None:
    samples = taken([0.31, 0.51])
    assert samples.undisturbed == [0.0, 1.0]
    assert samples.disturbed == pytest.approx(0.4)


def test_nothing_is_not_disturbed() -> None:
    assert taken([]).disturbed == 0.0
