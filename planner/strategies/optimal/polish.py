"""Compositions near one that, in order, take less: what they add up to does not know how few blocks run ahead."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from helmsman.planner.strategies.optimal.compose import Composition
from helmsman.planner.strategies.optimal.compositions import Aim, Compositions, Limited
from helmsman.planner.strategies.optimal.order import Arranged, Pattern, arranged_each, lined_up, patterned_each
from helmsman.planner.strategies.optimal.pace import Track
from helmsman.planner.strategies.optimal.rules import Ends
from helmsman.planner.strategies.optimal.ways import Chosen, Numbers

_ROUNDS, _LOOKED = 8, 24
"""So many times a block or two change their way, and so many such changes are looked at each time."""

_LESS = 2e-4
"""What is better by less than this share is not."""


@dataclass(frozen=True)
class Estimate:
    """A composition and its blocks in order, and about how many `seconds` of the objective they take."""

    composition: Composition
    arranged: Arranged
    seconds: float


@dataclass(frozen=True, eq=False)
class Nearby:
    """Compositions of `space` with the ends of the model at `ends`, and others near them. `track`: what their order
    depends on."""

    space: Compositions
    aim: Aim
    ends: Ends
    track: Track

    def simple(self, resident: int, most: int, fewer: bool) -> tuple[Composition, ...]:
        """At most so many of one way, and of one and `resident`, by row, with `fewer` of that too."""
        return self.space.simple(self.ends, self.aim, resident, most, fewer)

    def estimates(self, compositions: Sequence[Composition], known: Pattern | None = None) -> list[Estimate]:
        """Compositions in order, or as in a pattern that is `known`: what each adds up to, and what its order adds to
        its phases."""
        counts = [self.space.counted(each) for each in compositions]
        if known is None:
            found = arranged_each(counts, self.track, self._buffers)
        else:
            found = patterned_each(counts, known, self.track, self._buffers)
        return [self._estimated(each, order) for each, order in zip(compositions, found, strict=True)]

    def lined_up(self, estimate: Estimate) -> Estimate:
        """The same in a better order, unless its order costs next to nothing."""
        if estimate.seconds <= estimate.composition.seconds * (1 + _LESS):
            return estimate
        counts = self.space.counted(estimate.composition)
        return self._estimated(estimate.composition, lined_up(estimate.arranged, counts, self.track, self._buffers))

    @property
    def _buffers(self) -> int:
        return 1 + self.space.prefetch

    def _estimated(self, composition: Composition, found: Arranged) -> Estimate:
        space, lanes = self.space, self._lanes(self._row(composition)[None])[0]
        weights = {phase: self.aim.weights.get(phase, 0.0) for phase in space.blocks.phases}
        own = max(weights.values())
        if self.track.turns is not None:  # whole passes
            return Estimate(composition, found, max(composition.seconds, own * found.seconds))
        more = own * found.seconds + sum(
            weight * space.outside(lanes, self._room, number) for number, weight in enumerate(weights.values())
        )
        return Estimate(composition, found, composition.seconds + max(0.0, more))

    def polished(self, start: Estimate, pool: Sequence[Composition]) -> Estimate:
        """The best that is found by changing the ways of a block or two, again and again, to one of those of a `pool`
        of compositions."""
        ways = np.array(sorted({way for each in pool for way, _ in each.counts}), dtype=np.intp)
        best = start
        for _ in range(_ROUNDS):
            near = self.estimates(tuple(self._near(best, ways)), best.arranged.pattern)
            found = min(near, key=lambda each: each.seconds, default=best)
            if found.seconds >= best.seconds * (1 - _LESS):
                break
            best = found
        return best

    def _near(self, best: Estimate, ways: Chosen) -> Iterator[Composition]:
        """Those that fit and add up to less than the best takes, the least first."""
        row = self._row(best.composition)[ways]
        eye = np.eye(len(ways))
        one = (row - eye[:, None] + eye[None]).reshape(-1, len(ways))
        rows = np.unique(one, axis=0)
        rows = rows[(rows >= 0).all(axis=1) & (rows != row).any(axis=1)]
        seconds = np.where(self._fits(rows, ways), self._room.room.seconds(self._lanes(rows, ways)), np.inf)
        for place in np.argsort(seconds, kind="stable")[:_LOOKED]:
            if seconds[place] >= best.seconds * (1 - _LESS):
                return
            taken = ((int(ways[way]), int(rows[place, way])) for way in np.flatnonzero(rows[place]))
            yield Composition(tuple(sorted(taken)), float(seconds[place]))

    def _fits(self, rows: Numbers, ways: Chosen) -> Numbers:
        kept, room = self.space.kept(self._room)[ways], self._room.room
        sizes = self.space.ways.coming[ways]
        coming = np.stack([np.where(rows > 0, flow, 0.0).max(axis=1) for flow in sizes.T], axis=1)
        return np.asarray((rows @ kept + coming @ room.buffers <= room.free).all(axis=1))

    def _lanes(self, rows: Numbers, ways: Chosen | slice = slice(None)) -> Numbers:
        return np.asarray(self._room.room.ends + rows @ self.space.ways.lanes[ways])

    def _row(self, composition: Composition) -> Numbers:
        found = np.zeros(len(self.space.names))
        found[[way for way, _ in composition.counts]] = [count for _, count in composition.counts]
        return found

    @cached_property
    def _room(self) -> Limited:
        return self.space.room(self.ends, self.aim)
