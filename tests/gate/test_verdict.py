"""Verdicts on one figure: machine, model, or nobody knows; and on many synthetic histories."""

from collections import Counter

import pytest
from gate_histories import synthetic_history

from helmsman.gate.verdict import BLOCKING, RESOLUTION, blocks, judge
from helmsman.schemas.gate_report import FigureTimes, GateVerdict

STEADY = tuple(1.0 + number / 500 for number in (0, 3, 1, 4, 2, 5, 1.5, 3.5, 2.5))
AGAIN = tuple(reversed(STEADY))
HISTORIES = range(200)


def times(samples: tuple[float, ...] = STEADY, factor: float = 1.0, predicted: float | None = 1.0) -> FigureTimes:
    return FigureTimes(predicted_s=predicted, samples_s=tuple(factor * value for value in samples))


def test_the_same_again_is_ok() -> None:
    judgement = judge(times(AGAIN), times())
    assert judgement.verdict == "ok" and judgement.remedy is None


def test_seconds_that_grew_while_the_prediction_stands_are_the_machines() -> None:
    judgement = judge(times(AGAIN, 1.2), times())
    assert judgement.verdict == "slower"
    assert "the prediction stands" in judgement.reason and "the machine or the code changed" in judgement.reason


def test_seconds_that_shrank_are_faster() -> None:
    assert judge(times(AGAIN, 0.8), times()).verdict == "faster"


@pytest.mark.parametrize("predicted", [0.7, 1.5])
def test_a_prediction_that_moved_away_is_drift_of_the_model(predicted: float) -> None:
    judgement = judge(times(AGAIN, predicted=predicted), times())
    assert judgement.verdict == "drift"
    assert "drift of the model" in judgement.reason and "not of the machine" in judgement.reason
    assert judge(times(predicted=predicted), times()).verdict == "drift", "of the same stored runs"


def test_a_prediction_that_came_nearer_is_no_drift() -> None:
    judgement = judge(times(AGAIN, predicted=1.0), times(predicted=1.4))
    assert judgement.verdict == "ok" and "no further off" in judgement.reason


def test_a_machine_that_the_record_follows_is_slower_not_drifted() -> None:
    judgement = judge(times(AGAIN, 1.3, predicted=1.3), times())
    assert judgement.verdict == "slower" and "with what is measured" in judgement.reason


def test_both_away_from_each_other_is_slower_and_says_drift() -> None:
    judgement = judge(times(AGAIN, 1.3, predicted=0.7), times())
    assert judgement.verdict == "slower" and "drift of the model as well" in judgement.reason


def test_drift_is_not_judged_where_nothing_was_predicted() -> None:
    assert judge(times(AGAIN, predicted=None), times()).verdict == "ok"
    slower = judge(times(AGAIN, 1.2, predicted=None), times(predicted=None))
    assert slower.verdict == "slower" and "prediction" not in slower.reason


def test_noise_is_undecided_never_ok() -> None:
    noisy = (1.0, 1.5, 0.8, 1.4, 0.9, 1.6, 0.7, 1.3)
    judgement = judge(times(noisy), times(tuple(reversed(noisy))))
    assert judgement.verdict == "undecided" and judgement.remedy
    assert judgement.change is not None and judgement.change.high > RESOLUTION


def test_a_change_within_its_noise_is_undecided() -> None:
    noisy = (1.0, 1.06) * 10
    judgement = judge(times(noisy, 1.12), times(noisy))
    assert judgement.verdict == "undecided" and "3 times the noise" in judgement.reason


def test_too_few_runs_say_how_many_more() -> None:
    assert judge(times(AGAIN[:2]), times()).remedy == "measure 3 more runs"
    few = judge(times(AGAIN), times(STEADY[:2]))
    assert few.verdict == "undecided" and few.remedy is not None and "7 or more" in few.remedy


def test_without_a_baseline_nothing_is_said() -> None:
    judgement = judge(times(), None)
    assert judgement.verdict == "undecided" and "accept" in str(judgement.remedy)


def test_a_figure_that_is_gone_failed() -> None:
    assert judge(FigureTimes(), times()).verdict == "failed"


@pytest.mark.parametrize("verdict", ["ok", "faster", "undecided", "slower", "drift", "failed"])
def test_only_what_was_ok_blocks(verdict: GateVerdict) -> None:
    assert blocks("ok", verdict) == (verdict in BLOCKING)
    assert not blocks(None, verdict) and not blocks("slower", verdict)


def verdicts(slowdown: float, predicted: float = 1.0, spread: float | None = None) -> Counter[str]:
    counted: Counter[str] = Counter()
    for seed in HISTORIES:
        history = synthetic_history(seed, slowdown, spread)
        assert history.now.predicted_s is not None
        now = history.now.model_copy(update={"predicted_s": history.now.predicted_s * predicted})
        counted[judge(now, history.baseline, history.sessions).verdict] += 1
    return counted


def test_false_alarms_are_one_in_a_hundred_at_most() -> None:
    counted = verdicts(0.0)
    assert counted["slower"] + counted["drift"] <= 0.01 * len(HISTORIES)
    assert counted["ok"] >= 0.95 * len(HISTORIES), "and hardly anything is left undecided"


def test_a_slowdown_of_a_tenth_is_caught_and_never_called_ok() -> None:
    counted = verdicts(0.10)
    assert counted["slower"] >= 0.95 * len(HISTORIES)
    assert counted["ok"] == 0


def test_a_wrong_constant_is_drift_in_every_history() -> None:
    counted = verdicts(0.0, predicted=0.8)
    assert counted["drift"] >= 0.95 * len(HISTORIES) and counted["slower"] == counted["ok"] == 0


def test_much_noise_hides_a_slowdown_but_is_not_called_ok() -> None:
    counted = verdicts(0.10, spread=0.04)
    assert counted["ok"] <= 0.01 * len(HISTORIES)
    assert counted["undecided"] > counted["slower"] > 0
