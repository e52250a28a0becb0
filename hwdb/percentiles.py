"""The ends of intervals: 5th percentile, median and 95th of a figure, of which records say the 10th and the 90th.

The distance from the median to an outer percentile grows as it does for a normal distribution, by 1.645 / 1.282: of
seconds and of parts of a duration as they are, of rates in logarithms, since seconds are quotients by them. Samples of
a profile are too few (5 to 75 a figure) to say their own 5th percentile better."""

from typing import Literal

from helmsman.hwdb.fit import Z90
from helmsman.schemas.figures import Figure
from helmsman.schemas.predicted import Interval

_Z95 = 1.6448536269514722

STRETCH = _Z95 / Z90
"""From the distance of the 10th and 90th percentile to that of the 5th and 95th."""

End = Literal["low", "mid", "high"]
ENDS: tuple[End, ...] = ("low", "mid", "high")

OPPOSITE: dict[End, End] = {"low": "high", "mid": "mid", "high": "low"}
"""The end of a rate that makes seconds of one end."""


def duration_at(figure: Figure, end: End) -> float:
    """Seconds, or a part of a duration, at one end of their interval; none is below 0."""
    if end == "mid":
        return figure.value
    outer = figure.p10 if end == "low" else figure.p90
    return max(0.0, figure.value + STRETCH * (outer - figure.value))


def rate_at(figure: Figure, end: End) -> float:
    """Return a rate at one end of its interval, bytes/s or FLOP/s."""
    if end == "mid":
        return figure.value
    outer = figure.p10 if end == "low" else figure.p90
    return float(figure.value * (outer / figure.value) ** STRETCH)


def mean_of(interval: Interval) -> float:
    """Return the mean of what has this 5th percentile, median and 95th, however skewed it is: the extended
    Pearson-Tukey approximation (Keefer and Bodily 1983)."""
    return 0.63 * interval.mid + 0.185 * (interval.low + interval.high)
