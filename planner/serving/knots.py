"""A Line through a model's values, with as many knots as keep what lies between them near the model (NEO-17)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from helmsman.scheduler.cost import Line

TOLERANCE = 0.005
"""Largest relative distance of a line from its model where it was looked at; half of what tests allow anywhere."""

NOTHING = Line((0.0,), (0.0,))
"""The line of what takes no time."""

_FAR = 2**20
"""Where a straight line has its last knot; it goes on beyond."""


def straight(seconds: Callable[[int], float]) -> Line:
    """A start and a rate: `seconds` of any number of things, 0 of none."""
    return Line((0.0, 1.0, float(_FAR)), (0.0, seconds(1), seconds(_FAR)))


_MARKS = tuple(4**power for power in range(16))
"""Where lines have knots in any case."""

_Knot = tuple[int, float]
"""A number of things, and the seconds or bytes that they take."""


@dataclass(frozen=True, slots=True)
class KnotTable:
    """A table of what any number of things takes. `place`: where a line has so many of them; `looks`: at how many
    points between two knots the line is compared with it."""

    seconds: Callable[[int], float]
    place: Callable[[int], int] = int
    looks: int = 3

    def fitted(self, most: int) -> Line:
        """1 to `most` things as a line, from 0 seconds of none on. Where more take less, fewer take no longer: they
        could pass as more."""
        marks = [mark for mark in _MARKS if mark < most]
        knots = [(most, self.seconds(most))]
        for first in reversed(marks):
            knots += self._before(knots[-1], first)
        ascending = [(0, 0.0), *reversed(knots)]
        return Line(tuple(float(self.place(things)) for things, _ in ascending), tuple(value for _, value in ascending))

    def _before(self, stop: _Knot, first: int) -> Iterator[_Knot]:
        """Knots before `stop`, down to `first` things, in that order."""
        last, most = stop
        start = first, min(most, self.seconds(first))
        middle = max(first + 1, round((first * last) ** 0.5))
        if middle < last and not self._straight(start, stop):
            halfway = tuple(self._before(stop, middle))
            yield from halfway
            yield from self._before(halfway[-1], first)
        else:
            yield start

    def _straight(self, start: _Knot, stop: _Knot) -> bool:
        """Whether the straight line is near what things take wherever it is looked at."""
        return all(self._near(things, start, stop) for things in self._looked(start[0], stop[0]))

    def _looked(self, first: int, last: int) -> Iterator[int]:
        """Numbers of things between two, evenly."""
        counts = (first + (last - first) * look // (self.looks + 1) for look in range(1, self.looks + 1))
        return (things for things in counts if first < things < last)

    def _near(self, things: int, start: _Knot, stop: _Knot) -> bool:
        (first, low), (last, high) = start, stop
        part = (self.place(things) - self.place(first)) / (self.place(last) - self.place(first))
        value = min(high, self.seconds(things))
        return abs(low + part * (high - low) - value) <= TOLERANCE * value
