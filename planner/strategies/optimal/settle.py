"""A plan's blocks changed while that makes it faster: one or two of them run in other ways, or two change places.

Changes are timed step by step; two at once are those that alone save most, and that make room for most of that."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from helmsman.planner.strategies.optimal.compose import charged
from helmsman.planner.strategies.optimal.compositions import Aim, Compositions
from helmsman.planner.strategies.optimal.pace import Track
from helmsman.planner.strategies.optimal.relaxation import relaxation
from helmsman.planner.strategies.optimal.rules import Ends
from helmsman.planner.strategies.optimal.steps import Steps
from helmsman.planner.strategies.optimal.tracks import Tracks
from helmsman.planner.strategies.optimal.ways import Chosen, Numbers, Room
from helmsman.scheduler.iteration import Phase

_POOL = 40
"""Of so many ways, those that cost least where as much is on its way."""

_LESS, _TIMED = 1e-4, 400_000
"""What is better by less than such a share is not; so many blocks are timed, about, until no more changes are made."""

_PAIRED, _SWAPPED = 300, 400
"""So many of the best changes are made two at a time, of which so many are timed, and so many blocks change places."""


@dataclass(frozen=True, eq=False)
class Settling:
    """Blocks of one accelerator in one batch, with the ends of the model at `ends`; `space`: what is composed;
    `tracks`: how blocks follow each other."""

    space: Compositions
    tracks: Tracks
    aim: Aim
    ends: Ends

    def settled(self, rows: Chosen) -> Chosen:
        """The rows of all blocks in order, changed from `rows` while that helps, of many blocks a few times."""
        rated = self._rated(rows)
        best = np.searchsorted(rated.rows, rows)
        least = float(rated.seconds(best[None])[0])
        for _ in range(1 + _TIMED // (len(rows) * rated.most)):
            better = next((each for each in rated.changes(best, least) if each[0] < least * (1 - _LESS)), None)
            if better is None:
                break
            least, best = better
        return np.asarray(rated.rows[best])

    def _rated(self, rows: Chosen) -> "_Rated":
        summed, room = self.tracks.blocks.summed, self.space.room(self.ends, self.aim).room
        pool = np.union1d(rows, self._pool(summed.coming[rows].max(axis=0), room))
        passes = tuple(
            (weight, self.tracks.steps(phase, pool), self._track(phase)) for phase, weight in self.aim.weights.items()
        )
        return _Rated(pool, passes, 1 + self.space.prefetch, summed.kept[pool], summed.coming[pool], room)

    def _pool(self, most: Numbers, room: Room) -> Chosen:
        """The ways of which a block costs least, with at most so much on its way."""
        ways = self.space.ways
        names = np.flatnonzero((ways.coming <= most).all(axis=1))
        inner = ways.only(names)
        relaxed = relaxation(charged(inner, room), room)
        if relaxed is None:
            return names[:0]
        return self.space.names[names[np.argsort(relaxed.reduced, kind="stable")[:_POOL]]]

    def _track(self, phase: Phase) -> Track:
        return self.tracks.track(self.ends, {phase: 1.0})


@dataclass(frozen=True, eq=False)
class _Rated:
    """Ways by `rows`; `passes`: how often each counts, its steps and track; bytes that blocks keep and that are on
    their way, of what there is `room` for."""

    rows: Chosen
    passes: tuple[tuple[float, Steps, Track], ...]
    buffers: int
    kept: Numbers
    coming: Numbers
    room: Room

    @property
    def most(self) -> int:
        """How many orders are looked at for a change, at most."""
        return self.room.blocks * len(self.rows) + _PAIRED + _SWAPPED

    def seconds(self, orders: Chosen) -> Numbers:
        """Of many orders (orders, blocks), beside the ends of the model."""
        passes = (weight * steps.passes(orders, self.rows, track, self.buffers) for weight, steps, track in self.passes)
        return np.asarray(sum(passes))

    def changes(self, now: Chosen, least: float) -> Iterator[tuple[float, Chosen]]:
        """The best order that one change leads to, then two, then a change of places, each with its seconds."""
        blocks, ways = (of.ravel() for of in np.indices((len(now), len(self.rows))))
        blocks, ways = (of[ways != now[blocks]] for of in (blocks, ways))
        orders = self._changed(now, [(blocks, ways)])
        took = self.seconds(orders)
        yield self._best(orders, took)
        one, two = self._pairs(now, blocks, ways, took - least)
        yield self._timed(self._changed(now, [(blocks[one], ways[one]), (blocks[two], ways[two])]), now)
        yield self._timed(self._swapped(now), now)

    def _pairs(self, now: Chosen, blocks: Chosen, ways: Chosen, more: Numbers) -> tuple[Chosen, Chosen]:
        """Of changes that each take so much `more` pairs that fit, as far as they add up."""
        takes = self.kept[ways] - self.kept[now[blocks]]
        spare = self._free - self.kept[now].sum(axis=0) - self.coming[now].max(axis=0) @ self._buffers
        saved = -(takes @ self._scale)
        cheap = np.where(saved > 0, more / np.where(saved > 0, saved, 1.0), np.inf)
        first, second = (np.argsort(of, kind="stable")[:_PAIRED] for of in (more, cheap))
        one, two = (of.ravel() for of in np.meshgrid(first, second, indexing="ij"))
        fits = (takes[one] + takes[two] <= spare).all(axis=1) & (blocks[one] != blocks[two])
        one, two = one[fits], two[fits]
        chosen = np.argsort(more[one] + more[two], kind="stable")[:_PAIRED]
        return one[chosen], two[chosen]

    def _swapped(self, now: Chosen) -> Chosen:
        """Orders in which two blocks have changed places, near ones first."""
        one, two = np.triu_indices(len(now), 1)
        order = np.argsort(two - one, kind="stable")
        order = order[now[one[order]] != now[two[order]]][:_SWAPPED]
        one, two = one[order], two[order]
        return self._changed(now, [(one, now[two]), (two, now[one])])

    @staticmethod
    def _changed(now: Chosen, changes: list[tuple[Chosen, Chosen]]) -> Chosen:
        """Orders in each of which blocks have other ways."""
        found = np.repeat(now[None], len(changes[0][0]), axis=0)
        for blocks, ways in changes:
            found[np.arange(len(blocks)), blocks] = ways
        return found

    def _timed(self, orders: Chosen, now: Chosen) -> tuple[float, Chosen]:
        return self._best(orders, self.seconds(orders)) if len(orders) else (np.inf, now)

    def _best(self, orders: Chosen, took: Numbers) -> tuple[float, Chosen]:
        """The fastest that fits."""
        kept, coming = self.kept[orders].sum(axis=1), self.coming[orders].max(axis=1)
        took = np.where((kept + coming @ self._buffers <= self._free).all(axis=1), took, np.inf)
        place = int(took.argmin())
        return float(took[place]), orders[place]

    @property
    def _free(self) -> Numbers:
        return self.room.free[: self.kept.shape[1]]

    @property
    def _buffers(self) -> Numbers:
        return self.room.buffers[:, : self.kept.shape[1]]

    @cached_property
    def _scale(self) -> Numbers:
        """What a byte of each memory is worth, by how little there is."""
        return 1 / np.maximum(1.0, self._free)
