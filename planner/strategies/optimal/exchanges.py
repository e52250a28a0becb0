"""Whole counts near those of a relaxation: blocks change their ways, one or two at a time, while that helps.

Nearly always as good as what a mixed integer program finds, in a tenth of its time; with little room it may find less,
or nothing that fits."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from helmsman.planner.strategies.optimal.relaxation import Relaxed
from helmsman.planner.strategies.optimal.ways import Chosen, Numbers, Room, Ways

_ROUNDS, _PAIRED = 80, 48
"""So often something is exchanged at most; so many exchanges are tried two at a time, the cheapest and the best."""

_LESS = 1e-7
"""What is better by less than this share is not."""

_DEAR, _DEARER, _DEAREST, _FREE = 3.0, 10.0, 1e6, 1e-3
"""What memories lack costs so many times what the relaxation says, and so many times more while anything is lacking, up
to so many times; a memory that costs nothing there costs such a share of all seconds."""


@dataclass(frozen=True, eq=False)
class Exchanges:
    """Compositions of `ways` in `room`, whose relaxation is `relaxed`, with no more on its way than `room` knows."""

    ways: Ways
    room: Room
    relaxed: Relaxed

    def found(self) -> Numbers | None:
        """Whole counts (ways) that no exchange makes better; None if they do not fit."""
        counts, dear = self._rounded(), _DEAR
        for _ in range(_ROUNDS):
            better = self._better(counts, dear)
            if better is not None:
                counts = better
            elif self._lacks(counts) and dear < _DEAREST:
                dear *= _DEARER
            else:
                break
        return None if self._lacks(counts) else counts

    def _rounded(self) -> Numbers:
        """The relaxation's counts, the largest remainders rounded up."""
        found = np.floor(self.relaxed.counts + _LESS)
        remainders = np.argsort(found - self.relaxed.counts, kind="stable")
        found[remainders[: max(0, self.room.blocks - int(found.sum()))]] += 1
        return found

    def _lacks(self, counts: Numbers) -> bool:
        return bool((counts @ self.ways.kept > self.room.free).any())

    def _better(self, counts: Numbers, dear: float) -> Numbers | None:
        """After the best exchange of one block, or of two where one does not help."""
        away, to = np.divmod(np.arange(len(counts) ** 2), len(counts))
        some = (counts[away] > 0) & (away != to)
        away, to = away[some], to[some]
        lanes, kept = self.room.ends + counts @ self.ways.lanes, counts @ self.ways.kept
        least = float(self._costs(lanes, kept, dear)) * (1 - _LESS)
        more, takes = (of[to] - of[away] for of in (self.ways.lanes, self.ways.kept))
        seconds = self._costs(lanes + more, kept + takes, dear)
        if len(seconds) and seconds.min() < least:
            return self._changed(counts, away, to, [int(seconds.argmin())])
        cheap = self.relaxed.reduced[to] - self.relaxed.reduced[away]
        orders = (np.argsort(each, kind="stable")[:_PAIRED] for each in (cheap, seconds))
        one, two = _pairs(np.unique(np.concatenate([*orders])))
        enough = (away[one] != away[two]) | (counts[away[one]] > 1)
        one, two = one[enough], two[enough]
        seconds = self._costs(lanes + more[one] + more[two], kept + takes[one] + takes[two], dear)
        if not len(seconds) or seconds.min() >= least:
            return None
        best = int(seconds.argmin())
        return self._changed(counts, away, to, [int(one[best]), int(two[best])])

    @staticmethod
    def _changed(counts: Numbers, away: Chosen, to: Chosen, which: list[int]) -> Numbers:
        found = counts.copy()
        np.subtract.at(found, away[which], 1)
        np.add.at(found, to[which], 1)
        return found

    def _costs(self, lanes: Numbers, kept: Numbers, dear: float) -> Numbers:
        lacking = np.maximum(0.0, kept - self.room.free)
        return np.asarray(self.room.seconds(lanes) + dear * (lacking @ self._prices))

    @cached_property
    def _prices(self) -> Numbers:
        """Seconds (memories) of a byte that is lacking."""
        least = _FREE * self.relaxed.bound / np.maximum(1.0, np.abs(self.room.free))
        return np.maximum(self.relaxed.prices, least)


def _pairs(which: Chosen) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Every two of them, and each with itself."""
    one, two = np.triu_indices(len(which))
    return which[one], which[two]
