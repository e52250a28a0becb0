"""Statistics of repeated measurements: quantiles and relative spread."""

from collections.abc import Sequence
from itertools import pairwise
from math import floor
from statistics import median


def quantile(values: Sequence[float], q: float) -> float:
    """The q-quantile, linear between neighbouring ranks. At least one value."""
    ordered = sorted(values)
    position = q * (len(ordered) - 1)
    rank = floor(position)
    above = ordered[min(rank + 1, len(ordered) - 1)]
    return ordered[rank] + (position - rank) * (above - ordered[rank])


def spread(values: Sequence[float]) -> float:
    """Half the distance from the 10th to the 90th percentile, relative to the median; 0 for one value."""
    middle = median(values)
    return (quantile(values, 0.9) - quantile(values, 0.1)) / 2 / middle if middle else 0.0


def pair_difference(values: Sequence[float]) -> float | None:
    """A against A: the median relative difference of neighbouring repetitions; None for one value."""
    pairs = [abs(b / a - 1.0) for a, b in pairwise(values) if a]
    return median(pairs) if pairs else None
