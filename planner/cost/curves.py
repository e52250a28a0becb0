"""Efficiency curves between their points: piecewise linear over the logarithm of bytes or tokens."""

from math import inf, log
from typing import Protocol

from helmsman.schemas.figures import Figure


class Curve(Protocol):
    """Shares at rising points."""

    @property
    def at(self) -> tuple[float, ...]:
        """The points."""

    @property
    def share(self) -> tuple[Figure, ...]:
        """The share at each."""


def place_of(curve: Curve, at: float) -> float:
    """Return where `interpolate` looks for `at`: the same place for all before the first point, and for all behind the
    last."""
    first, last = curve.at[0], curve.at[-1]
    at = max(at, 1.0)
    return first if at <= first else inf if at > last else at


def interpolate(curve: Curve, at: float) -> Figure:
    """The curve's share at `at`: piecewise linear in log(at), constant outside."""
    points, shares = curve.at, curve.share
    if at <= points[0]:
        return shares[0]
    for index in range(1, len(points)):
        if at <= points[index]:
            left, right = log(points[index - 1]), log(points[index])
            return _mixed(shares[index - 1], shares[index], (log(at) - left) / (right - left))
    return shares[-1]


def _mixed(a: Figure, b: Figure, weight: float) -> Figure:
    def mix(x: float, y: float) -> float:
        return x + weight * (y - x)

    low, mid, high = mix(a.p10, b.p10), mix(a.value, b.value), mix(a.p90, b.p90)
    return a.model_copy(update={"value": mid, "p10": min(low, mid), "p90": max(high, mid)})
