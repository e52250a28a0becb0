"""Requests against tokens/s: plans for larger and larger batches, and those that no other plan beats in both."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from helmsman.analysis.comparison import missed
from helmsman.planner.prediction.speed import planned
from helmsman.schemas.comparison import Limit, Planned, Point
from helmsman.schemas.errors import InfeasibleError, UsageError
from helmsman.schemas.plan import Plan

Found = tuple[str, int, Planned]
"""A strategy, how many sequences together, and its plan for them."""


def batches(strategy: str, ask: Callable[[int], Plan], first: int, most: int) -> Iterator[Found]:
    """Yield the plans for `first` sequences together, for twice as many and so on while they fit, up to `most`."""
    batch = first
    while batch <= most:
        try:
            plan = ask(batch)
        except (InfeasibleError, UsageError):
            return
        yield strategy, batch, planned(plan)
        batch *= 2


def points(candidates: Iterable[Found], limits: Mapping[Limit, float] | None = None) -> tuple[Point, ...]:
    """Return all of them in their order, with the `limits` (seconds) that they miss; those marked that are on the front
    of what keeps all."""
    every = [(strategy, batch, planned, missed(planned, limits or {})) for strategy, batch, planned in candidates]
    kept = [number for number, (*_, misses) in enumerate(every) if not misses]
    speeds = [every[number][2].speed for number in kept]
    best = {kept[place] for place in _front([(speed.request.mid, speed.rate.mid) for speed in speeds])}
    return tuple(
        Point(strategy=strategy, batch=batch, planned=planned, front=number in best, misses=misses)
        for number, (strategy, batch, planned, misses) in enumerate(every)
    )


def front(every: Iterable[Point]) -> tuple[Point, ...]:
    """Return the points that no other beats, the shortest request first."""
    return tuple(sorted((point for point in every if point.front), key=lambda point: point.planned.speed.request.mid))


def _front(places: list[tuple[float, float]]) -> Iterator[int]:
    """Yield the numbers of (seconds, rate) for which no other is at least as good in both and better in one; the first
    of equals."""
    highest = 0.0
    for number in sorted(range(len(places)), key=lambda number: (places[number][0], -places[number][1])):
        if places[number][1] > highest:
            highest = places[number][1]
            yield number
