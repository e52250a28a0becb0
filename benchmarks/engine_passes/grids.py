"""Measured seconds on a grid, between whose points logarithms are straight in the logarithms of the axes."""

from bisect import bisect_left
from collections.abc import Mapping
from itertools import product
from math import exp, log

Point = tuple[float, ...]


class Grid:
    """Seconds by point."""

    def __init__(self, seconds: Mapping[Point, float]) -> None:
        self.logs = {point: log(value) for point, value in seconds.items()}
        axes = zip(*self.logs, strict=True) if self.logs else ()
        self.axes = [sorted(set(axis)) for axis in axes]

    def at(self, *point: float) -> float | None:
        """Return the seconds at a point; None beyond the grid, and where its neighbours were not measured."""
        if not self.axes or any(not axis[0] <= value <= axis[-1] for axis, value in zip(self.axes, point, strict=True)):
            return None
        corners = [_between(axis, value) for axis, value in zip(self.axes, point, strict=True)]
        total = 0.0
        for ends in product(*corners):
            weight, place = 1.0, []
            for value, part in ends:
                weight *= part
                place.append(value)
            if weight == 0.0:
                continue
            known = self.logs.get(tuple(place))
            if known is None:
                return None
            total += weight * known
        return exp(total)


def _between(axis: list[float], value: float) -> list[tuple[float, float]]:
    """Return the neighbours of a value with their weights, which add up to 1."""
    if len(axis) == 1 or value in axis:
        return [(value if value in axis else axis[0], 1.0)]
    place = min(max(bisect_left(axis, value), 1), len(axis) - 1)
    low, high = axis[place - 1], axis[place]
    part = (log(value) - log(low)) / (log(high) - log(low))
    return [(low, 1.0 - part), (high, part)]
