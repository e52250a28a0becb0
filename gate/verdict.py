"""The verdict on one figure of a case: whether the machine changed, or the model, or whether nobody can say.

What was measured says what the machine and the code on it do; what is predicted says what the model and its record
expect. So seconds that changed while the prediction stands are the machine's or the code's, and a prediction that moved
away from seconds that stand is drift of the model or of its record."""

from dataclasses import dataclass
from math import log
from statistics import median

from helmsman.gate.statistics import (
    LEAST_CHANGE,
    NOISES,
    SIGNIFICANCE,
    UNCHANGED,
    Change,
    can_differ,
    change_between,
    least_runs,
    runs_missing,
)
from helmsman.schemas.gate_report import FigureTimes, GateVerdict

RESOLUTION = 0.10
"""The slow-down that `ok` rules out, with the confidence of a change's interval."""
MODEL_CHANGE = 0.05
"""The relative change of a prediction, and the growth of its error, that are drift."""

ORDER: tuple[GateVerdict, ...] = ("failed", "slower", "drift", "undecided", "faster", "ok")
"""Verdicts, the worst first."""
BLOCKING: frozenset[GateVerdict] = frozenset({"failed", "slower", "drift"})


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, why, what to do about it, and the measured change behind it (None where nothing was compared)."""

    verdict: GateVerdict
    reason: str
    remedy: str | None = None
    change: Change | None = None


def judge(now: FigureTimes, baseline: FigureTimes | None, sessions: tuple[float, ...] = ()) -> Judgement:
    """Return the verdict on a figure; `sessions`: medians of earlier measurements of the same thing.

    Raises HardwareUnavailableError where SciPy is needed and missing."""
    if baseline is None or not baseline.samples_s:
        return Judgement("undecided", "nothing is accepted to compare with", "accept a result: helm-check accept SUITE")
    if not now.samples_s:
        return Judgement("failed", "it was measured before and is not now", "make the measurement report it again")
    if now.samples_s == baseline.samples_s:
        change = UNCHANGED
    elif can_differ(len(baseline.samples_s), len(now.samples_s)):
        change = change_between(baseline.samples_s, now.samples_s, sessions)
    else:
        return _too_few(len(baseline.samples_s), len(now.samples_s))
    return _judged(now, baseline, change)


def blocks(was: GateVerdict | None, verdict: GateVerdict) -> bool:
    """Whether a case that was ok is not: slower, drifted, or no longer measured."""
    return was == "ok" and verdict in BLOCKING


def error_of(times: FigureTimes) -> float | None:
    """Return (measured - predicted) / predicted of the median run; None where one is missing."""
    if not times.samples_s or not times.predicted_s:
        return None
    return median(times.samples_s) / times.predicted_s - 1.0


def prediction_change(now: FigureTimes, baseline: FigureTimes) -> float | None:
    """Return the relative change of the prediction; None where one is missing."""
    if not now.predicted_s or not baseline.predicted_s:
        return None
    return now.predicted_s / baseline.predicted_s - 1.0


def drifted(now: FigureTimes, baseline: FigureTimes, change: Change) -> bool:
    """Whether the prediction moved and its error grew, wherever in the interval of `change` the measured seconds are.

    The error is |log(measured / predicted)|, which counts half and double alike."""
    moved, before = prediction_change(now, baseline), error_of(baseline)
    if moved is None or before is None or now.predicted_s is None or abs(moved) <= MODEL_CHANGE:
        return False
    nearest = _nearest(median(baseline.samples_s), change, now.predicted_s)
    return abs(log(nearest / now.predicted_s)) - abs(log(1.0 + before)) > log(1.0 + MODEL_CHANGE)


def _nearest(measured: float, change: Change, predicted: float) -> float:
    """Return the seconds of the interval that are nearest to a prediction."""
    low, high = measured * (1.0 + change.low), measured * (1.0 + change.high)
    return min(max(predicted, low), high)


def _judged(now: FigureTimes, baseline: FigureTimes, change: Change) -> Judgement:
    drift = drifted(now, baseline, change)
    if change.counts:
        return _measured_change(now, baseline, change, drift)
    if drift:
        return Judgement("drift", _drift_words(now, baseline), "correct the record or the model; else accept", change)
    if abs(change.relative) > LEAST_CHANGE or change.high > RESOLUTION:
        return _undecided(now, change)
    return Judgement("ok", f"measured {_interval(change)}{_moved_words(now, baseline)}", None, change)


def _undecided(now: FigureTimes, change: Change) -> Judgement:
    """Return that nobody can tell; more runs help where a change may be an accident, not where single runs scatter."""
    measured = f"measured {_interval(change)}"
    if change.p_value < SIGNIFICANCE:
        within = f"within {change.threshold:.1%}, {NOISES:g} times the noise"
        reason = f"{measured}, no accident (p = {change.p_value:.2g}), but {within}"
        remedy = "measure when nothing else runs: single runs scatter as much as they differ"
        return Judgement("undecided", reason, remedy, change)
    reason = f"{measured}, noise {change.noise:.1%}, which shows neither a change nor that there is none"
    remedy = f"measure {len(now.samples_s)} more runs, or when nothing else runs"
    return Judgement("undecided", reason, remedy, change)


def _measured_change(now: FigureTimes, baseline: FigureTimes, change: Change, drift: bool) -> Judgement:
    told = _cause_words(prediction_change(now, baseline), drift)
    reason = f"measured {_interval(change)}, beyond {change.threshold:.1%}, p = {change.p_value:.2g}; {told}"
    if change.relative > 0.0:
        return Judgement("slower", reason, "find the change that did it; else accept", change)
    return Judgement("faster", reason, "accept it, so that it is kept", change)


def _cause_words(moved: float | None, drift: bool) -> str:
    """Say what changed beside measured seconds; `moved`: the prediction, relative to before, None without one."""
    if moved is None:
        return "the machine or the code changed"
    if abs(moved) <= MODEL_CHANGE:
        return "the prediction stands: the machine or the code changed"
    away = "away from what is measured, which is drift of the model as well" if drift else "with what is measured"
    return f"the prediction moved {moved:+.1%}, {away}"


def _drift_words(now: FigureTimes, baseline: FigureTimes) -> str:
    moved, error, before = prediction_change(now, baseline), error_of(now), error_of(baseline)
    return (
        f"the prediction moved {moved:+.1%} while the machine measures as before: its error was {before:+.1%} and is "
        f"{error:+.1%}: drift of the model or of its record, not of the machine"
    )


def _moved_words(now: FigureTimes, baseline: FigureTimes) -> str:
    moved = prediction_change(now, baseline)
    if moved is None or abs(moved) <= MODEL_CHANGE:
        return ""
    errors = f"its error was {error_of(baseline):+.1%} and is {error_of(now):+.1%}"
    return f"; the prediction moved {moved:+.1%} and is no further off: {errors}"


def _too_few(baseline: int, candidate: int) -> Judgement:
    least = least_runs()
    reason = f"{candidate} runs against {baseline} cannot differ significantly; {least} against {least} can"
    if baseline < least:
        return Judgement("undecided", reason, f"accept a baseline of {least} or more runs")
    return Judgement("undecided", reason, f"measure {runs_missing(baseline, candidate)} more runs")


def _interval(change: Change) -> str:
    return f"{change.relative:+.1%} [{change.low:+.1%} .. {change.high:+.1%}]"
