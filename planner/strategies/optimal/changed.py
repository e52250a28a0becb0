"""Plans far from their bound, with blocks changed while that helps."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from helmsman.planner.strategies.optimal.compositions import Compositions
from helmsman.planner.strategies.optimal.finalist import Finalist, least
from helmsman.planner.strategies.optimal.in_order import InOrder
from helmsman.planner.strategies.optimal.rules import Assignment
from helmsman.planner.strategies.optimal.settle import Settling

_FINE, _CHANGED = 0.01, 2
"""So near to its bound, as a share, blocks of a plan are not changed; of so many plans they are."""


def changed(
    order: InOrder, spaces: Iterable[Compositions], found: Sequence[Finalist], bound: float
) -> Iterator[Finalist]:
    """The best of those `found` that were composed in one of `spaces`, with blocks changed, if they are far from the
    bound."""
    composed = [each for each in found if _stepwise(order) and len(set(each.chosen.blocks)) > 1]
    if not composed or least(found) <= bound * (1 + _FINE):
        return
    ahead = {space.prefetch: space for space in sorted(spaces, key=lambda space: len(space.names))}
    for each in sorted(composed, key=lambda each: each.seconds)[:_CHANGED]:
        better = tuple(_settled(order, ahead[each.chosen.prefetch], each.chosen))
        yield from better
        if least(better) <= bound * (1 + _FINE):
            return


def _settled(order: InOrder, space: Compositions, chosen: Assignment) -> Iterator[Finalist]:
    ends, ways = (chosen.embedding, chosen.output), order.tracks.blocks.ways
    rows = np.array([ways.index(way) for way in chosen.blocks], dtype=np.intp)
    settled = Settling(space, order.tracks, order.aim, ends).settled(rows)
    yield from order.once(order.assignment(space, ends, settled.tolist()))


def _stepwise(order: InOrder) -> bool:
    """Whether one batch passes blocks of one accelerator, without limits."""
    frame = order.question.frame
    single = len(frame.roles.accelerators) == 1 and frame.roles.separate
    return single and frame.workload.batches == 1 and not order.aim.limits
