"""Margins of one executed plan over another: predicted, measured, and at the speeds of the profile."""

import pytest
from benchmarks.baselines import Executed
from benchmarks.executed_margins import Margins
from plans import make_plan
from shapes import small_model

from helmsman.analysis.rows import Sample, make_row
from helmsman.schemas.predicted import Interval


def executed(predicted: float, rounds: list[tuple[float, float]]) -> Executed:
    """A decode step of `predicted` seconds; by round, what was measured, and predicted at the speeds of the round."""
    plan = make_plan(small_model("llama"))
    decode = plan.predicted.decode.model_copy(
        update={"seconds": Interval(low=predicted, mid=predicted, high=predicted)}
    )
    plan = plan.model_copy(update={"predicted": plan.predicted.model_copy(update={"decode": decode})})
    rows = [
        make_row(("decode", "step", ""), [Sample(0, 1, predicted, scaled, predicted, took)]) for took, scaled in rounds
    ]
    return Executed("strategy", plan, rows)


def test_a_machine_that_slowed_down_for_one_of_a_pair_is_taken_out_of_it() -> None:
    """The second pair: the other plan met a machine of half the speed, which its probes saw."""
    found = Margins(executed(1.0, [(1.0, 1.0), (1.0, 1.0)]), executed(2.0, [(1.8, 2.0), (3.6, 4.0)]))
    assert found.predicted == pytest.approx(1.0)
    assert found.measured == pytest.approx([0.8, 2.6]) and found.scaled == pytest.approx([0.8, 0.8])


@pytest.mark.parametrize(("took", "holds"), [(1.71, True), (1.69, False)])
def test_seven_tenths_of_what_was_predicted_are_enough(took: float, holds: bool) -> None:
    assert Margins(executed(1.0, [(1.0, 1.0)]), executed(2.0, [(took, 2.0)])).holds is holds


def test_a_plan_that_was_not_predicted_to_be_faster_shows_nothing() -> None:
    assert not Margins(executed(2.0, [(1.0, 2.0)]), executed(2.0, [(3.0, 2.0)])).holds
