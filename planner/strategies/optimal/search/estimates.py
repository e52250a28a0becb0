"""About how long compositions take in order: what they add up to does not know how few blocks run ahead."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from helmsman.planner.strategies.optimal.configurations.rules import BUFFERS, Ends
from helmsman.planner.strategies.optimal.order.order import BlockOrder, arranged_each, lined_up
from helmsman.planner.strategies.optimal.order.pace import Track
from helmsman.planner.strategies.optimal.program.compose import Composition
from helmsman.planner.strategies.optimal.program.ways import Numbers
from helmsman.planner.strategies.optimal.search.compositions import Aim, Compositions, LimitedRoom

_LESS = 2e-4
"""The share of a composition's seconds by which its order may be longer without being improved."""


@dataclass(frozen=True)
class OrderEstimate:
    """A composition and its blocks in order, and about how many `seconds` of the objective they take."""

    composition: Composition
    arranged: BlockOrder
    seconds: float


@dataclass(frozen=True, eq=False)
class OrderEstimator:
    """Estimates how long compositions of `space` take in order, with the ends of the model at `ends`; `track`: what
    their order depends on."""

    space: Compositions
    aim: Aim
    ends: Ends
    track: Track

    def simple(self, resident: int, most: int, fewer: bool) -> tuple[Composition, ...]:
        """At most so many of one way, and of one and `resident`, by row, with `fewer` of that too."""
        return self.space.simple(self.ends, self.aim, resident, most, fewer)

    def of(self, compositions: Sequence[Composition]) -> list[OrderEstimate]:
        """Return the estimates of compositions, each in its best order: the seconds to which it adds up, and those that
        its order adds to its phases."""
        counts = [self.space.counted(composition) for composition in compositions]
        orders = arranged_each(counts, self.track, BUFFERS)
        return [self._estimated(one, order) for one, order in zip(compositions, orders, strict=True)]

    def lined_up(self, estimate: OrderEstimate) -> OrderEstimate:
        """Return the estimate in a better order, unless its order costs next to nothing."""
        if estimate.seconds <= estimate.composition.seconds * (1 + _LESS):
            return estimate
        counts = self.space.counted(estimate.composition)
        return self._estimated(estimate.composition, lined_up(estimate.arranged, counts, self.track, BUFFERS))

    def _estimated(self, composition: Composition, arranged: BlockOrder) -> OrderEstimate:
        space = self.space
        lanes = self._room.room.ends + self._row(composition) @ space.ways.lanes
        weights = {phase: self.aim.weights.get(phase, 0.0) for phase in space.blocks.phases}
        own = max(weights.values())
        if self.track.turns is not None:  # whole passes
            return OrderEstimate(composition, arranged, max(composition.seconds, own * arranged.seconds))
        more = own * arranged.seconds + sum(
            weight * space.outside(lanes, self._room, number) for number, weight in enumerate(weights.values())
        )
        return OrderEstimate(composition, arranged, composition.seconds + max(0.0, more))

    def _row(self, composition: Composition) -> Numbers:
        row = np.zeros(len(self.space.names))
        row[[way for way, _ in composition.counts]] = [count for _, count in composition.counts]
        return row

    @cached_property
    def _room(self) -> LimitedRoom:
        return self.space.room(self.ends, self.aim)
