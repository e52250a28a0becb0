"""Slots for experts, layer by layer: by the seconds that a slot saves there.

The seconds of a layer by its slots need not fall for ever, nor evenly: of their lower envelope the convex minorant is
taken, whose pieces are bought by what a slot saves, most first, as one price for a slot in every layer would have it.
Whole pieces are bought, so that at most one layer is between two points of its minorant; exchanges mend that."""

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush, nlargest, nsmallest
from itertools import pairwise, product
from typing import NamedTuple

EXCHANGES = 4
"""Rounds of exchanges of a step of slots between two layers: few, as the minorant is near what is chosen."""


_ROUNDING = 1e-12
"""Part of a layer's seconds that is no saving."""


class Segment(NamedTuple):
    """A piece of a minorant from point `start` to `stop` of a curve."""

    start: int
    stop: int


def allocate(curves: Sequence[Sequence[float]], steps: int) -> tuple[int, ...]:
    """Return by layer how many steps of slots it gets, `steps` in all at most; `curves`: by layer the seconds with 0,
    1, ... steps. O(layers x points x log)."""
    envelopes = [_envelope(curve) for curve in curves]
    given, left = [0] * len(curves), steps
    waiting = [(-_gain(envelopes[layer], piece), layer, 0) for layer, piece in _first_pieces(envelopes)]
    heapify(waiting)
    pieces = [_minorant(envelope) for envelope in envelopes]
    while waiting and left > 0:
        gain, layer, number = heappop(waiting)
        piece = pieces[layer][number]
        if gain >= 0.0:
            break
        bought = min(piece.stop - piece.start, left)
        if (
            bought < piece.stop - piece.start
            and envelopes[layer][piece.start + bought] >= envelopes[layer][piece.start]
        ):
            continue
        given[layer], left = piece.start + bought, left - bought
        if number + 1 < len(pieces[layer]) and given[layer] == piece.stop:
            heappush(waiting, (-_gain(envelopes[layer], pieces[layer][number + 1]), layer, number + 1))
    return _exchanged(envelopes, given, left)


def _first_pieces(envelopes: Sequence[Sequence[float]]) -> list[tuple[int, Segment]]:
    return [(layer, pieces[0]) for layer, envelope in enumerate(envelopes) if (pieces := _minorant(envelope))]


def _envelope(curve: Sequence[float]) -> list[float]:
    """Return the least of a curve with so many steps or fewer: nobody has to use all of its slots."""
    least, result = curve[0], []
    for seconds in curve:
        least = min(least, seconds)
        result.append(least)
    return result


def _minorant(curve: Sequence[float]) -> list[Segment]:
    """Return the pieces of the largest convex function below a curve."""
    kept: list[int] = []
    for point in range(len(curve)):
        while len(kept) > 1 and _above(curve, kept[-2], kept[-1], point):
            kept.pop()
        kept.append(point)
    return [Segment(start, stop) for start, stop in pairwise(kept)]


def _above(curve: Sequence[float], first: int, middle: int, last: int) -> bool:
    """Whether a point lies on or above the line between two others."""
    straight = (curve[last] - curve[first]) * (middle - first)
    return (curve[middle] - curve[first]) * (last - first) >= straight


def _gain(curve: Sequence[float], piece: Segment) -> float:
    """Return the seconds that a step of a piece saves."""
    return (curve[piece.start] - curve[piece.stop]) / (piece.stop - piece.start)


def _exchanged(curves: Sequence[Sequence[float]], given: list[int], left: int) -> tuple[int, ...]:
    """Give what is left, and move steps between layers, as long as that saves seconds."""
    for _ in range(EXCHANGES):
        before = list(given)
        left = _spent(curves, given, left)
        _moved(curves, given)
        if given == before:
            break
    return tuple(given)


def _spent(curves: Sequence[Sequence[float]], given: list[int], left: int) -> int:
    """Give every layer what it can use of what is left, most saving first; return what is left then."""
    while left > 0:
        best, steps, saved = 0, 0, 0.0
        for layer, curve in enumerate(curves):
            for more in range(1, min(left, len(curve) - 1 - given[layer]) + 1):
                gain = (curve[given[layer]] - curve[given[layer] + more]) / more
                if gain > saved:
                    best, steps, saved = layer, more, gain
        if not steps:
            return left
        given[best], left = given[best] + steps, left - steps
    return 0


def _moved(curves: Sequence[Sequence[float]], given: list[int]) -> None:
    """Move steps from the layer that loses least by it to the one that gains most, while that saves seconds."""
    while (exchange := max(_exchanges(curves, given), default=None)) is not None and exchange[0] > 0.0:
        _, giver, taker, steps = exchange
        given[giver], given[taker] = given[giver] - steps, given[taker] + steps


def _exchanges(curves: Sequence[Sequence[float]], given: Sequence[int]) -> Iterator[tuple[float, int, int, int]]:
    """Yield the best exchange of every number of steps: the seconds that it saves, from which layer to which."""
    having = list(zip(curves, given, strict=True))
    for steps in range(1, max(map(len, curves))):
        costs = [(curve[have - steps] - curve[have], at) for at, (curve, have) in enumerate(having) if have >= steps]
        gains = [
            (curve[have] - curve[have + steps], at)
            for at, (curve, have) in enumerate(having)
            if have + steps < len(curve)
        ]
        for (lost, giver), (won, taker) in product(nsmallest(2, costs), nlargest(2, gains)):
            if giver != taker and won - lost > _ROUNDING * curves[taker][0]:
                yield won - lost, giver, taker, steps
