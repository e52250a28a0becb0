"""A Line through a model's values, with as many knots as keep what lies between them near the model (NEO-17)."""

from collections.abc import Callable, Iterator
from functools import lru_cache

from helmsman.scheduler.cost import Line

TOLERANCE = 0.005
"""Largest relative distance of a line from its model where it was looked at; half of what tests allow anywhere."""

NOTHING = Line((0.0,), (0.0,))
"""What takes no time."""

_FAR = 2**20
"""Where a straight line has its last knot; it goes on beyond."""


def straight(seconds: Callable[[int], float]) -> Line:
    """A start and a rate: `seconds` of any number of things, 0 of none."""
    return Line((0.0, 1.0, float(_FAR)), (0.0, seconds(1), seconds(_FAR)))


def fitted(seconds: Callable[[int], float], most: int, place: Callable[[int], int] = int) -> Line:
    """`seconds` of 1 to `most` things as a line over their `place`, from 0 seconds of none on.

    Where more things would take less time they take as long as fewer."""
    model = lru_cache(maxsize=None)(seconds)
    knots = [(0, 0.0)]
    marks = [1 << power for power in range(most.bit_length()) if 1 << power < most]
    for mark in (*marks, most):
        knots += _between(model, place, knots[-1], mark)
    return Line(tuple(float(place(things)) for things, _ in knots), tuple(value for _, value in knots))


def _between(
    model: Callable[[int], float], place: Callable[[int], int], start: tuple[int, float], stop: int
) -> Iterator[tuple[int, float]]:
    """Knots after `start`, up to `stop` things, in order."""
    first, least = start
    end = stop, max(least, model(stop))
    middle = max(first + 1, round((max(first, 1) * stop) ** 0.5))
    if middle < stop and not _straight(model, place, start, end):
        halfway = tuple(_between(model, place, start, middle))
        yield from halfway
        yield from _between(model, place, halfway[-1], stop)
    else:
        yield end


def _straight(
    model: Callable[[int], float], place: Callable[[int], int], start: tuple[int, float], stop: tuple[int, float]
) -> bool:
    """Whether the model is near the straight line wherever it is looked at: at eighths of the way."""
    (first, low), (last, high) = start, stop
    for eighth in range(1, 8):
        things = first + (last - first) * eighth // 8
        if first < things < last:
            part = (place(things) - place(first)) / (place(last) - place(first))
            value = max(low, model(things))
            if abs(low + part * (high - low) - value) > TOLERANCE * value:
                return False
    return True
