"""The 95 % confidence interval of a mean over seeds, by Student's t."""

from collections.abc import Sequence
from math import sqrt
from statistics import fmean, stdev

_STUDENT = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""97.5th percentile of Student's t with 1, 2, ... degrees of freedom."""
_NORMAL = 1.960


def half_width(values: Sequence[float]) -> float | None:
    """Return half of the 95 % confidence interval of the mean; none for one value."""
    freedom = len(values) - 1
    if freedom < 1:
        return None
    quantile = _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else _NORMAL
    return quantile * stdev(values) / sqrt(len(values))


def interval(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the ends of the 95 % confidence interval of a mean that is not negative; none for one value."""
    half = half_width(values)
    mean = fmean(values)
    return (None, None) if half is None else (max(0.0, mean - half), mean + half)
