"""Bisections find where an SLO is lost, and say so where it never is."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from together import together

from helmsman.schemas.errors import InfeasibleError
from helmsman.simulator.serving.bisection import PRECISION, NothingMissesError, bisect_count, bisect_rate, lowest_near


def _counted(holds: Callable[[float], bool]) -> tuple[list[float], Callable[[float], bool]]:
    """What has been tried, and a function that notes it."""
    tried: list[float] = []

    def count(value: float) -> bool:
        tried.append(value)
        return holds(value)

    return tried, count


@together("true", [1e-4, 0.9, 1.0, 3.7, 5000.0])
@together("factor", [2.0, 1.05])
def test_rates_close_in_on_where_the_slo_is_lost(true: float, factor: float) -> None:
    tried, keeps = _counted(lambda rate: rate <= true)
    bracket = bisect_rate(keeps, 1.0, seed=7, factor=factor)
    assert bracket.seed == 7 and bracket.keeps <= true < bracket.misses
    assert bracket.misses / bracket.keeps <= 1.0 + PRECISION
    assert len(tried) < 40


def test_a_rate_near_a_known_one_takes_fewer_runs() -> None:
    near, keeps_near = _counted(lambda rate: rate <= 10.1)
    far, keeps_far = _counted(lambda rate: rate <= 10.1)
    bisect_rate(keeps_near, 10.0, 0, 1.05)
    bisect_rate(keeps_far, 10.0, 0)
    assert len(near) <= 5 < len(far)


@pytest.mark.parametrize("factor", [2.0, 1.05])
def test_limits_that_nothing_or_everything_keeps_are_said_to_be(factor: float) -> None:
    with pytest.raises(InfeasibleError, match="no rate keeps") as caught:
        bisect_rate(lambda rate: False, 1.0, 0, factor)
    assert not isinstance(caught.value, NothingMissesError)
    with pytest.raises(NothingMissesError, match="no rate misses"):
        bisect_rate(lambda rate: True, 1.0, 0, factor)


@given(last=st.integers(0, 300), guess=st.integers(0, 400), most=st.integers(1, 300))
def test_the_last_number_that_holds_is_found_from_every_guess(last: int, guess: int, most: int) -> None:
    tried, holds = _counted(lambda count: count <= last)
    assert bisect_count(holds, guess, most) == min(last, most)
    assert all(1 <= count <= most for count in tried) and len(set(tried)) == len(tried) < 25


@given(st.sets(st.integers(1, 60)), st.integers(1, 60))
def test_of_numbers_that_hold_here_and_there_one_is_found_after_which_the_next_does_not(
    holding: set[int], guess: int
) -> None:
    count = bisect_count(lambda number: number in holding, guess, 60)
    assert count == 0 or count in holding
    assert count == 60 or count + 1 not in holding


@given(st.sets(st.integers(1, 40)), st.integers(1, 40), st.integers(1, 6))
def test_losses_near_below_a_number_are_not_passed_over(missing: set[int], count: int, reach: int) -> None:
    missing.discard(count)
    kept = [n for n in range(1, count + 1) if missing.isdisjoint(range(n - reach, n + 1))]
    assert lowest_near(lambda number: number not in missing, count, reach) == max(kept, default=0)
