"""Which of several answers is recommended: the simplest of those that cannot be told apart from the fastest."""

from dataclasses import dataclass

import pytest

from helmsman.planner.choice import MOST_ABOVE_SIMPLE, MOST_PASSED_OVER, choose
from helmsman.planner.prediction.complexity import Complexity
from helmsman.planner.prediction.sensitivity import Sensitivity
from helmsman.schemas.predicted import Interval


@dataclass(frozen=True)
class Made:
    """A contender with all that a choice looks at; `spread`: what a cause of its own may add, or save, if it may save
    anything (`assumed`: it may not)."""

    complexity: Complexity
    mid: float
    spread: float = 0.0
    assumed: bool = False
    simple: bool = True
    cause: tuple[str, str] = ("link", "link")

    @property
    def seconds(self) -> Interval:
        low = self.mid if self.assumed else max(0.0, self.mid - self.spread)
        return Interval(low=low, mid=self.mid, high=self.mid + self.spread)

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity(self.mid, {self.cause: (0.0 if self.assumed else -self.spread, self.spread)})


def one(mid: float, spread: float = 0.0) -> Made:
    return Made(Complexity.ONE_DEVICE, mid, spread)


def layers(mid: float, spread: float = 0.0) -> Made:
    return Made(Complexity.LAYERS, mid, spread)


def shared(mid: float, spread: float = 0.0, *, assumed: bool = False) -> Made:
    return Made(Complexity.MATRICES, mid, spread, assumed, simple=False, cause=("crossings", "overhead"))


def test_what_is_surely_faster_is_chosen():
    best = shared(6.0, 1.0)
    assert choose([layers(10.0), best, one(20.0)]).chosen is best
    assert choose([best, layers(10.0)]).passed_over == ()


def test_the_simplest_is_chosen_where_the_gain_may_be_none():
    plain, fast = layers(10.0), shared(9.2, 2.5)
    found = choose([fast, plain])
    assert found.chosen is plain
    [(passed, saved)] = found.passed_over
    assert passed is fast
    assert (saved.low, saved.mid, saved.high) == pytest.approx((0.0, 0.8, 3.3))


def test_of_simple_plans_none_is_given_up_for_more_than_three_per_cent():
    split = layers(10.0, 9.0)
    assert choose([split, one(10.0 * MOST_ABOVE_SIMPLE * 0.999)]).chosen.complexity == Complexity.ONE_DEVICE
    assert choose([split, one(10.0 * MOST_ABOVE_SIMPLE * 1.001)]).chosen is split


def test_what_is_expected_to_be_a_tenth_faster_is_chosen_however_uncertain_it_is():
    """Of two equally uncertain causes the seconds that are expected are the medians."""
    most = 9.0 * MOST_PASSED_OVER
    assert choose([shared(9.0, 8.0), layers(most * 0.999)]).chosen.complexity == Complexity.LAYERS
    assert choose([shared(9.0, 8.0), layers(most * 1.001)]).chosen.complexity == Complexity.MATRICES


def test_assumed_crossings_count_in_what_is_expected():
    """The median of what nobody measured is none: a plan that is faster by its median alone is passed over."""
    assert choose([shared(8.0, 12.0, assumed=True), layers(10.0)]).chosen.complexity == Complexity.LAYERS
    assert choose([shared(8.0, 4.0, assumed=True), layers(10.0)]).chosen.complexity == Complexity.MATRICES


def test_what_repeated_runs_differ_by_is_much_where_it_may_be_far_more():
    best, skewed = shared(10.0, 0.1), Made(Complexity.LAYERS, 10.25, 50.0, assumed=True)
    assert choose([best, skewed]).chosen is best


def test_no_plan_is_recommended_that_is_worse_at_all_three_ends():
    better, worse = shared(8.0, 3.0, assumed=True), layers(10.0, 2.0)
    ends = [(each.seconds.low, each.seconds.mid, each.seconds.high) for each in (better, worse)]
    assert all(a <= b for a, b in zip(*ends, strict=True))
    assert choose([worse, better]).chosen is better


def test_what_repeated_runs_differ_by_is_no_difference():
    assert choose([shared(10.0), one(10.2)]).chosen.complexity == Complexity.ONE_DEVICE
    assert choose([shared(10.0), one(10.4)]).chosen.complexity == Complexity.MATRICES


def test_what_would_save_little_is_told_too():
    """As little as runs of one plan differ by: the user sees what the simpler plan costs at most."""
    ((_, saved),) = choose([shared(10.0), one(10.2)]).passed_over
    assert saved.mid == pytest.approx(0.2)
    assert choose([shared(10.2), one(10.0)]).passed_over == ()


def test_errors_in_common_decide_nothing():
    cause = ("cpu", "memory")
    slow = Made(Complexity.LAYERS, 10.0, 9.0, cause=cause)
    fast = Made(Complexity.MATRICES, 9.0, 9.0, simple=False, cause=cause)
    assert choose([slow, fast]).chosen is fast


def test_equal_plans_the_simpler_one():
    assert choose([layers(10.0), one(10.0)]).chosen.complexity == Complexity.ONE_DEVICE


@pytest.mark.parametrize(("risk", "kind"), [("median", Complexity.LAYERS), ("pessimistic", Complexity.LAYERS)])
def test_a_gamble_is_refused(risk, kind):
    assert choose([layers(10.0), shared(8.0, 12.0, assumed=True)], risk).chosen.complexity == kind


def test_risks_differ():
    """At its worst the first is slower than the second by less than it is faster at its best."""
    gamble, steady = shared(9.8, 1.0), layers(10.5)
    assert choose([gamble, steady], "median").chosen is steady
    assert choose([gamble, steady], "pessimistic").chosen is steady
    assert choose([gamble, steady], "regret").chosen is gamble


def test_a_doubtful_plan_does_not_win_over_one_that_is_simpler_and_faster():
    """The split is too uncertain to be told apart from the fastest; one device, faster than it, surely is slower."""
    best, sure, doubtful = shared(8.0, 0.01), one(10.0), layers(10.2, 5.0)
    assert choose([best, sure, doubtful]).chosen is best


def test_a_simple_plan_sets_the_limit_though_another_is_simpler_and_faster_than_it():
    """What people have without Helm streams weights; the search has whole layers that are faster, and doubtful."""
    engine = Made(Complexity.OPERATIONS, 7.0)
    found = Made(Complexity.LAYERS, 5.6, 3.0, simple=False, cause=("crossings", "overhead"))
    assert choose([engine, found, one(7.0 * MOST_ABOVE_SIMPLE * 1.01)]).chosen is found


def test_one_answer_is_the_answer():
    only = shared(1.0, 5.0)
    assert choose([only]).chosen is only
