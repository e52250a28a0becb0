"""The last word on operation splits: the prediction of whole steps, for the best by the closed form."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from math import gcd
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from helmsman.lowering.lower import lower
from helmsman.lowering.placement import Placed, batches_together
from helmsman.planner.cost.model import CostModel
from helmsman.planner.prediction.objective import weighted_seconds
from helmsman.planner.prediction.phase_document import bottleneck, gap
from helmsman.planner.prediction.predict import assemble, mean_step, phase_seconds
from helmsman.planner.strategies.op_split.search import TIE, Split
from helmsman.planner.strategies.streaming.place import Frame, Layout, place
from helmsman.scheduler.iteration import Iteration, Phase, prefill
from helmsman.schemas.predicted import Interval, Predicted

if TYPE_CHECKING:
    from helmsman.planner.strategies.op_split.strategy import OpSplit

ItemT = TypeVar("ItemT")

_FEW_LAYERS = 2
_MORE_LAYERS = 4
"""The layers of two models whose difference is the period of a layer: first and last of them do not matter."""

_DOUBT = 0.05
"""Splits whose layers take so much longer than those of the best are not the best by whole steps, of which the ends of
the model, and what first and last layers wait for, are a smaller part."""


class SplitFinalist(NamedTuple):
    """A split, its seconds of the objective, and the question in whose terms it is."""

    split: Split
    seconds: float
    question: "OpSplit"


def by_prediction(ranked: Iterable[Split], predicted: Callable[[Split], float], least: int) -> tuple[Split, ...]:
    """The `least` fastest of `ranked`: of its first `least`, and all after them that L' still allows to be the best.

    L' of one batch where links slow nobody is a bound from below, so what is cut off there is worse than the best.
    Equal ones stay in the order of L'."""
    splits: list[tuple[Split, float]] = []
    for split in ranked:
        if len(splits) >= least and split.seconds > min(seconds for _, seconds in splits):
            break
        splits.append((split, predicted(split)))
    return tuple(split for split, _ in _ordered(splits))[:least]


def in_order(finalists: Iterable[SplitFinalist]) -> tuple[SplitFinalist, ...]:
    """The fastest first; equal ones stay in their order."""
    return tuple(finalist for finalist, _ in _ordered([(split, split.seconds) for split in finalists]))


def fewer_chunks(chunks: Mapping[str, int]) -> tuple[dict[str, int], ...]:
    """The divisions of operations that are part of one, coarser ones first, itself last: a question that may divide
    less is contained in one that may divide more where its parts are whole numbers of the other's."""
    most = sorted({part for count in chunks.values() for part in range(1, count + 1) if count % part == 0})
    fewer = ({op: gcd(count, part) for op, count in chunks.items() if gcd(count, part) > 1} for part in most)
    own = {op: count for op, count in chunks.items() if count > 1}
    return tuple(dict(division) for division in dict.fromkeys(tuple(division.items()) for division in (*fewer, own)))


def near(proposed: Mapping[Split, float], count: int) -> Iterator[Split]:
    """Of splits with their seconds per layer those that may be the best, and no fewer than `count`."""
    ranked = sorted(proposed.items(), key=lambda pair: pair[1])
    for rank, (split, seconds) in enumerate(ranked):
        if rank < count or seconds <= ranked[0][1] * (1 + _DOUBT):
            yield split


def _ordered(left: list[tuple[ItemT, float]]) -> Iterator[tuple[ItemT, float]]:
    while left:
        least = min(seconds for _, seconds in left)
        limit = least + TIE * abs(least)
        first = next(place for place, (_, seconds) in enumerate(left) if seconds <= limit)
        yield left.pop(first)


def layer_seconds(frame: Frame, costs: CostModel, layout: Layout, phase: Phase = "decode") -> float:
    """Seconds per layer in the prompt or the mean decode step, of all batches: with what lanes cost each other
    (PARK-43)."""
    if frame.model.layers <= _MORE_LAYERS:
        return _of_layers(frame, costs, layout, frame.model.layers, phase) / frame.model.layers
    few, more = (_of_layers(frame, costs, layout, layers, phase) for layers in (_FEW_LAYERS, _MORE_LAYERS))
    return (more - few) / (_MORE_LAYERS - _FEW_LAYERS)


def _of_layers(frame: Frame, costs: CostModel, layout: Layout, layers: int, phase: Phase) -> float:
    """Seconds of a phase of the model with so many layers."""
    placed = place(replace(frame, model=frame.model.with_layers(layers)), layout)
    return phase_seconds(placed, costs, phase)


def end_seconds(frame: Frame, costs: CostModel, layout: Layout, weights: Mapping[Phase, float]) -> float:
    """Seconds of work on the ends of the model in the phases, as often as they count."""
    placed = place(replace(frame, model=frame.model.with_layers(1)), layout)
    work, together = placed.workload, batches_together(placed)
    passes: Mapping[Phase, Iteration] = {"prefill": prefill(work, together), "decode": mean_step(work, together)}

    def seconds(phase: Phase) -> float:
        return sum(costs.price(task).mid for task in lower(placed, passes[phase]).tasks if task.layer is None)

    return weighted_seconds(weights, seconds)


def with_printed_step(placed: Placed, predicted: Predicted, seconds: float) -> Predicted:
    """The prediction with decode steps of so many `seconds`, and as uncertain, as a share, as they were predicted."""
    step = predicted.decode
    ends = {end: value * seconds / step.seconds.mid for end, value in step.seconds}
    bound = min(step.lower_bound, seconds)
    changed: dict[str, object] = {
        "seconds": Interval(**{**ends, "mid": seconds}),
        "bottleneck": bottleneck(step.terms, placed.hardware, seconds),
        "lower_bound": bound,
        "gap": gap(seconds, bound),
    }
    return assemble(placed, predicted.prefill, step.model_copy(update=changed))
