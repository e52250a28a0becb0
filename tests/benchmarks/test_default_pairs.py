"""Pairs of the default plan and the best simple one: margins, noise, and which pairs break the promise."""

import pytest
from benchmarks.default_pairs import Execution, Pair, same_plan, verdict
from plans import make_plan
from shapes import small_model


def pair(default_s: float, simple_s: float, *measured: float) -> Pair:
    """Runs in the order A B B A on a machine as fast as when it was profiled."""
    predicted = (default_s, simple_s, simple_s, default_s)
    runs = [Execution(took, wanted, 0.0) for took, wanted in zip(measured, predicted, strict=False)]
    return Pair("question", "default", "simple", default_s, simple_s, tuple(runs))


def test_a_drift_over_the_four_runs_cancels() -> None:
    drifting = pair(1.0, 1.0, 1.00, 1.02, 1.04, 1.06)
    assert drifting.measured == pytest.approx(0.0) and not drifting.slower


def test_noise_is_what_two_runs_of_one_plan_differ_by() -> None:
    assert pair(1.0, 1.0, 1.2, 1.0, 1.0, 1.0).noise == pytest.approx(0.1)
    assert pair(1.0, 1.0, 1.0, 1.0, 1.0, 1.0).noise == pytest.approx(0.03)


@pytest.mark.parametrize(("took", "slower"), [(1.02, False), (1.04, True)])
def test_the_default_may_be_slower_by_no_more_than_noise(took: float, slower: bool) -> None:
    judged = pair(1.0, 1.0, took, 1.0, 1.0, took)
    assert judged.slower is slower and verdict([judged], 1) is not slower


@pytest.mark.parametrize(("took", "unrealised"), [(1.15, False), (1.13, True)])
def test_seven_tenths_of_a_margin_worth_having_must_be_there(took: float, unrealised: bool) -> None:
    judged = pair(1.0, 1.2, 1.0, took, took, 1.0)
    assert judged.unrealised is unrealised and verdict([judged], 1) is not unrealised


def test_a_small_margin_need_not_be_seen() -> None:
    assert not pair(1.0, 1.09, 1.0, 1.0, 1.0, 1.0).unrealised


def test_margins_at_the_speeds_of_the_profile_leave_out_a_slow_spell_of_one_side() -> None:
    """Both B met half the speed, which their probes saw."""
    slow = Execution(2.4, 2.4, 0.0)
    fast = Execution(1.0, 1.0, 0.0)
    judged = Pair("question", "default", "simple", 1.0, 1.2, (fast, slow, slow, fast))
    assert judged.measured == pytest.approx(1.4) and judged.scaled == pytest.approx(0.2)


def test_margins_are_judged_at_the_speeds_of_the_profile() -> None:
    """As run, the simple plan took 1.3 times as long, because both of its runs met a slower machine."""
    fast, slow = Execution(1.0, 1.0, 0.0), Execution(1.3, 1.56, 0.0)
    judged = Pair("question", "default", "simple", 1.0, 1.2, (fast, slow, slow, fast))
    assert judged.measured == pytest.approx(0.3) and judged.scaled == pytest.approx(0.0)
    assert judged.unrealised


def test_a_pair_that_stayed_disturbed_is_not_measured(capsys: pytest.CaptureFixture[str]) -> None:
    beside = [Execution(took, 1.0, 0.3) for took in (2.0, 1.0, 1.0, 2.0)]
    judged = Pair("question", "default", "simple", 1.0, 1.0, tuple(beside))
    assert judged.disturbed and "not measured" in str(judged)
    assert not verdict([judged], 1)
    assert "0 slower" in (said := capsys.readouterr().out) and "1 not measured, 1 of them disturbed" in said


def test_a_question_without_a_simple_plan_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert verdict([pair(1.0, 1.0)], 2, ["another"])
    assert "another" in capsys.readouterr().out


def test_a_pair_of_one_plan_is_equal_and_a_missing_pair_is_no_success() -> None:
    equal = pair(1.0, 1.0)
    assert equal.same and not equal.slower and "equal" in str(equal)
    assert verdict([equal], 1) and not verdict([equal], 2)


def test_plans_are_the_same_whoever_decided_them() -> None:
    plan = make_plan(small_model("llama"))
    assert same_plan(plan, plan.model_copy(update={"label": "another"}))
    assert not same_plan(plan, plan.model_copy(update={"activations": "bf16"}))
