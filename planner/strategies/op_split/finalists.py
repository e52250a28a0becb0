"""The last word on operation splits: the prediction of a few layers, for the best by the closed form."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from helmsman.planner.costs import CostModel
from helmsman.planner.predict import phase_seconds
from helmsman.planner.strategies.op_split.search import TIE, Split
from helmsman.planner.strategies.streaming.place import Frame, Layout, place
from helmsman.scheduler.iteration import Phase

_FEW, _MORE = 2, 4
"""Layers of the two models whose difference is the period of a layer: first and last of them do not matter."""

_SETTLED, _CLOSE = 4, 0.01
"""So many finalists, and so close to the first, are told apart by whole steps: with the ends of the model, and what
first and last layers wait for."""

Finalist = tuple[Split, float]
"""A split and its seconds per layer, of all batches."""


def by_prediction(ranked: Iterable[Split], predicted: Callable[[Split], float], least: int) -> tuple[Finalist, ...]:
    """The first `least` of `ranked`, and all after them that L' still allows to be the best; the fastest first.

    L' of one batch where links slow nobody is a bound from below, so what is cut off there is worse than the best.
    Equal ones stay in the order of L'."""
    found: list[Finalist] = []
    for split in ranked:
        if len(found) >= least and split.seconds > min(seconds for _, seconds in found):
            break
        found.append((split, predicted(split)))
    return tuple(_ordered(found))


def settled(found: tuple[Finalist, ...], whole: Callable[[Split], float]) -> tuple[Finalist, ...]:
    """`found` with those first that a few layers cannot tell apart, in the order of their `whole` steps."""
    close = [each for each in found[:_SETTLED] if each[1] <= found[0][1] * (1 + _CLOSE)]
    if len(close) < 2:
        return found
    return (*sorted(close, key=lambda each: whole(each[0])), *found[len(close) :])


def _ordered(left: list[Finalist]) -> Iterator[Finalist]:
    while left:
        least = min(seconds for _, seconds in left)
        limit = least + TIE * abs(least)
        first = next(place for place, (_, seconds) in enumerate(left) if seconds <= limit)
        yield left.pop(first)


def layer_seconds(frame: Frame, costs: CostModel, layout: Layout, phase: Phase = "decode") -> float:
    """Seconds per layer in the prompt or the mean decode step, of all batches: with what lanes cost each other
    (PARK-43)."""
    if frame.model.layers <= _MORE:
        return _of_layers(frame, costs, layout, frame.model.layers, phase) / frame.model.layers
    few, more = (_of_layers(frame, costs, layout, layers, phase) for layers in (_FEW, _MORE))
    return (more - few) / (_MORE - _FEW)


def _of_layers(frame: Frame, costs: CostModel, layout: Layout, layers: int, phase: Phase) -> float:
    """Seconds of a phase of the model with so many layers."""
    placed = place(replace(frame, model=frame.model.model_copy(update={"layers": layers})), layout)
    return phase_seconds(placed, costs, phase)
