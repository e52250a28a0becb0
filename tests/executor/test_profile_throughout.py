"""Figures of a whole profile: moments in which others took much do not count where there are others."""

from collections.abc import Iterator

import pytest

from helmsman.executor.interference import CpuTimes, Moment
from helmsman.executor.profile.quality import Watch
from helmsman.executor.profile.throughout import Throughout


def watch(shares: list[float]) -> Watch:
    """Moments in pairs, 1 s apart; of every second on one processor others take such a share."""

    def moments() -> Iterator[Moment]:
        clock = busy = 0.0
        for share in shares:
            yield Moment(clock, CpuTimes(busy, clock, 0.0))
            clock, busy = clock + 1.0, busy + share
            yield Moment(clock, CpuTimes(busy, clock, 0.0))

    ticking = moments()
    return Watch(now=lambda: next(ticking))


def taken(shares: list[float]) -> Throughout:
    values = iter(range(len(shares)))
    found = Throughout(watch(shares), lambda: float(next(values)))
    for _ in shares:
        found.add()
    return found


def test_what_others_disturbed_does_not_count() -> None:
    found = taken([0.0, 0.5, 0.03])
    assert found.undisturbed == [0.0, 2.0]
    assert found.disturbed == pytest.approx(0.01)  # a clock tick of each second is subtracted


def test_where_all_are_disturbed_all_count_and_say_so() -> None:
    found = taken([0.31, 0.51])
    assert found.undisturbed == [0.0, 1.0]
    assert found.disturbed == pytest.approx(0.4)


def test_nothing_is_not_disturbed() -> None:
    assert taken([]).disturbed == 0.0
