"""Samples to figures and curves: order statistics, nothing assumed about their distribution."""

from collections.abc import Mapping, Sequence
from math import sqrt

from helmsman.schemas.figures import LEAST_SHARE, MOST_SHARE, Figure
from helmsman.schemas.hardware import Efficiency

Z90 = 1.2815515655446004
"""The 90th percentile of the standard normal distribution."""


def quantile(values: Sequence[float], q: float) -> float:
    """Return the q-quantile with linear interpolation between order statistics (Hyndman-Fan 7)."""
    ordered = sorted(values)
    place = q * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def spread(values: Sequence[float]) -> float:
    """From the 10th to the 90th percentile of `values` (at least one), over their median; 0 where that is 0."""
    low, mid, high = (quantile(values, at) for at in (0.1, 0.5, 0.9))
    return (high - low) / mid if mid > 0.0 else 0.0


def figure(values: Sequence[float], source: str) -> Figure:
    """Median, 10th and 90th percentile and count of `values` (at least one)."""
    return Figure(
        value=quantile(values, 0.5),
        p10=quantile(values, 0.1),
        p90=quantile(values, 0.9),
        n=len(values),
        source=source,
    )


def settled(values: Sequence[float], source: str, independent: int | None = None) -> Figure:
    """Median and count of `values` (at least one), and the 10th and 90th percentile of that median, not of a sample:
    what matters where a pass takes the sum of hundreds. Order statistics, by the normal approximation of their ranks
    (Conover 1999). `independent`: of how many values that know nothing of each other; all by default."""
    aside = Z90 * 0.5 / sqrt(independent or len(values))
    return Figure(
        value=quantile(values, 0.5),
        p10=quantile(values, max(0.0, 0.5 - aside)),
        p90=quantile(values, min(1.0, 0.5 + aside)),
        n=len(values),
        source=source,
    )


def exact(value: float, source: str) -> Figure:
    """Return a configured or counted number: no spread, no samples."""
    return Figure(value=value, p10=value, p90=value, source=source)


def curve(bound: str, op: str, fmt: str, shares: Mapping[float, Sequence[float]], source: str) -> Efficiency:
    """Return an efficiency curve from the samples of its share at each `at`.

    With the spread of single samples, although a pass has many: it has them between other work, which none had (a wait
    for the slower thread behind every second product took 2 us of 20 to 40). Samples beyond what a share may be, beside
    a read that was held up a hundredfold, are kept at its limits."""
    points = sorted(shares)
    return Efficiency.model_validate(
        {
            "bound": bound,
            "op": op,
            "format": fmt,
            "at": tuple(points),
            "share": tuple(figure([_limited(share) for share in shares[at]], source) for at in points),
        }
    )


def _limited(share: float) -> float:
    return min(max(share, LEAST_SHARE), MOST_SHARE)
