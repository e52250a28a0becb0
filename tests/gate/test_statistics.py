"""Two samples compared: closed forms, bounds, and the least numbers of runs."""

from math import comb
from statistics import median

import pytest

from helmsman.gate import statistics
from helmsman.gate.statistics import (
    LEAST_CHANGE,
    SIGNIFICANCE,
    can_differ,
    change_between,
    least_runs,
    noise_of,
    p_value,
    runs_missing,
)
from helmsman.schemas.errors import HardwareUnavailableError

STEADY = [1.0 + number / 1000 for number in range(9)]


def test_the_least_runs_are_those_of_an_exact_test() -> None:
    assert least_runs() == 7
    assert not can_differ(6, 6) and can_differ(7, 7)
    apart = [1.0 + number / 100 for number in range(7)]
    assert p_value(apart, [value + 1.0 for value in apart]) == pytest.approx(2 / comb(14, 7))
    assert p_value(apart[:6], [value + 1.0 for value in apart[:6]]) > SIGNIFICANCE


@pytest.mark.parametrize(("baseline", "candidate"), [(7, 0), (7, 3), (10, 1), (15, 15)])
def test_missing_runs_are_no_more_than_needed(baseline: int, candidate: int) -> None:
    missing = runs_missing(baseline, candidate)
    assert can_differ(baseline, candidate + missing)
    assert missing == 0 or not can_differ(baseline, candidate + missing - 1)


def test_a_change_is_the_median_of_all_ratios() -> None:
    slower = [1.2 * value for value in reversed(STEADY)]
    change = change_between(STEADY, slower)
    assert change.relative == pytest.approx(median(new / old for new in slower for old in STEADY) - 1.0)
    assert change.low <= change.relative <= change.high
    assert change.low > 0.15 and change.high < 0.25
    assert change.counts and change.threshold == LEAST_CHANGE


def test_the_other_direction_is_the_inverse() -> None:
    slower = [1.2 * value for value in STEADY]
    there, back = change_between(STEADY, slower), change_between(slower, STEADY)
    assert (1.0 + there.relative) * (1.0 + back.relative) == pytest.approx(1.0)
    assert (1.0 + there.low) * (1.0 + back.high) == pytest.approx(1.0)
    assert there.p_value == pytest.approx(back.p_value)


def test_samples_that_interleave_do_not_differ() -> None:
    change = change_between(STEADY[::2], STEADY[1::2])
    assert change.p_value > 0.5 and not change.counts


def test_noise_raises_the_threshold() -> None:
    noisy = [1.0, 1.1] * 8
    change = change_between(noisy, [1.2 * value for value in noisy])
    assert change.noise == pytest.approx(0.1, rel=0.1)
    assert change.threshold == pytest.approx(3 * change.noise)
    assert change.p_value < SIGNIFICANCE and not change.counts


def test_noise_is_that_of_neighbours_or_of_earlier_measurements() -> None:
    assert noise_of([1.0, 1.0, 1.0], [2.0, 2.0, 2.0]) == 0.0
    assert noise_of([1.0], [2.0]) == 0.0
    assert noise_of([1.0, 1.0], [1.0, 1.0], [1.0, 1.1, 1.0, 1.1, 1.0]) == pytest.approx(0.0955, rel=0.05)
    assert noise_of([1.0, 1.0], [1.0, 1.0], [1.0, 1.1]) == 0.0


def test_equal_seconds_are_no_change() -> None:
    change = change_between([0.5] * 8, [0.5] * 8)
    assert (change.relative, change.low, change.high, change.p_value) == (0.0, 0.0, 0.0, 1.0)


def test_ties_are_allowed() -> None:
    assert p_value([1.0] * 8 + [2.0], [2.0] * 8 + [1.0]) < 0.02


@pytest.mark.parametrize("wrong", [([], [1.0]), ([1.0], []), ([0.0], [1.0]), ([1.0], [-1.0])])
def test_samples_that_cannot_be_compared_are_refused(wrong: tuple[list[float], list[float]]) -> None:
    with pytest.raises(ValueError, match="positive seconds"):
        change_between(*wrong)


def test_without_scipy_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "find_spec", lambda name: None)
    with pytest.raises(HardwareUnavailableError) as caught:
        p_value([1.0, 2.0], [3.0, 4.0])
    assert "helmsman[gate]" in str(caught.value)
