"""Statistics of repeated measurements: relative spread, and A against A."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from helmsman.hwdb.fit import quantile


def spread(values: Sequence[float]) -> float:
    """Half the distance from the 10th to the 90th percentile, relative to the median; 0 for one value."""
    middle = median(values)
    return (quantile(values, 0.9) - quantile(values, 0.1)) / 2 / middle if middle else 0.0


def pair_difference(values: Sequence[float]) -> float | None:
    """Return a against A: the median relative difference of neighbouring repetitions; None for one value."""
    pairs = [abs(b / a - 1.0) for a, b in pairwise(values) if a]
    return median(pairs) if pairs else None
