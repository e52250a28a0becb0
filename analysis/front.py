"""Requests against tokens/s: plans for larger and larger batches, and those that no other plan beats in both."""

from collections.abc import Callable, Iterable, Iterator

from helmsman.analysis.comparison import planned
from helmsman.schemas.comparison import Planned, Point
from helmsman.schemas.errors import InfeasibleError, UsageError
from helmsman.schemas.plan import Plan

Found = tuple[str, int, Planned]
"""A strategy, how many sequences together, and its plan for them."""


def batches(strategy: str, ask: Callable[[int], Plan], first: int, most: int) -> Iterator[Found]:
    """The plans for `first` sequences together, for twice as many and so on while they fit, up to `most`."""
    batch = first
    while batch <= most:
        try:
            plan = ask(batch)
        except (InfeasibleError, UsageError):
            return
        yield strategy, batch, planned(plan)
        batch *= 2


def points(found: Iterable[Found]) -> tuple[Point, ...]:
    """All of them in their order, those marked that are on the front."""
    every = tuple(found)
    best = set(_front([(each.speed.request.mid, each.speed.rate.mid) for *_, each in every]))
    return tuple(
        Point(strategy=strategy, batch=batch, planned=each, front=number in best)
        for number, (strategy, batch, each) in enumerate(every)
    )


def front(every: Iterable[Point]) -> tuple[Point, ...]:
    """The points that no other beats, the shortest request first."""
    return tuple(sorted((each for each in every if each.front), key=lambda each: each.planned.speed.request.mid))


def _front(places: list[tuple[float, float]]) -> Iterator[int]:
    """The numbers of (seconds, rate) for which no other is at least as good in both and better in one; the first of
    equals."""
    highest = 0.0
    for number in sorted(range(len(places)), key=lambda number: (places[number][0], -places[number][1])):
        if places[number][1] > highest:
            highest = places[number][1]
            yield number
