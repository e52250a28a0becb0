"""The program that is solved, in numbers alone: ways to run a block, what every block of a way asks for, and what there
is.

A plan runs `blocks` blocks, each in one of several *ways*. A pass takes at least the busiest of its *lanes*: devices,
links, memories that several share, and the chain in which blocks follow each other. Memories must hold what all blocks
keep, and what is on its way for the block that needs most of it."""

from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Chosen = NDArray[np.intp]

_WAYS_AT_A_TIME = 128
"""The number of ways that are compared with others at a time."""

_TELLING_DEMANDS = 3
"""The number of demands by which ways are compared first: those that tell most of them apart."""

_SAMPLED_WAYS = 64
"""The number of ways from which these demands are chosen."""


@dataclass(frozen=True, eq=False)
class Ways:
    """The demands of a block of each way. `lanes` (ways, lanes): seconds; `kept` (ways, memories): bytes; `coming`
    (ways, flows): bytes of what is on its way for one block."""

    lanes: Numbers
    kept: Numbers
    coming: Numbers

    def __len__(self) -> int:
        return len(self.lanes)

    def only(self, which: Chosen) -> "Ways":
        """Some of them."""
        return Ways(self.lanes[which], self.kept[which], self.coming[which])


@dataclass(frozen=True, eq=False)
class Room:
    """The capacities that there are, and what counts.

    `ends` (lanes): seconds of what is not in blocks; `weights` (phases): how often each phase counts; `phase` (lanes):
    the phase of every lane; `free` (memories): bytes for blocks; `buffers` (flows, memories): how many bytes of each
    memory a byte on its way takes."""

    blocks: int
    ends: Numbers
    weights: Numbers
    phase: Chosen
    free: Numbers
    buffers: Numbers

    def seconds(self, lanes: Numbers) -> Numbers:
        """The objective of totals by lane (..., lanes): the busiest lane of every phase, each as often as it counts."""
        busiest = [lanes[..., self.phase == index].max(axis=-1) for index in range(len(self.weights))]
        return np.asarray(sum(weight * most for weight, most in zip(self.weights, busiest, strict=True)))

    def busiest(self, some: Numbers, others: Numbers) -> Numbers:
        """The objective of each of `some` totals by lane with each of `others` (some x others)."""
        objective = np.zeros((len(some), len(others)))
        for phase, weight in enumerate(self.weights):
            lanes = np.flatnonzero(self.phase == phase)
            most = np.full_like(objective, -inf)
            for one, other in zip(some.T[lanes], others.T[lanes], strict=True):
                np.maximum(most, one[:, None] + other, out=most)
            objective += weight * most
        return objective.ravel()


def undominated(ways: Ways) -> Chosen:
    """The ways that no other one beats or equals in everything it asks for; of equal ones the first."""
    demands = np.hstack([ways.lanes, ways.kept, ways.coming])
    order = np.argsort(demands.sum(axis=1), kind="stable")
    kinds, within = _kinds(demands[order])
    columns, kept = _telling_first(demands[order].T), np.zeros(0, dtype=np.intp)
    for start in range(0, len(order), _WAYS_AT_A_TIME):
        fresh = np.arange(start, min(start + _WAYS_AT_A_TIME, len(order)))
        fresh = fresh[~_beaten(columns, kept, fresh, within[np.ix_(kinds[kept], kinds[fresh])]).any(axis=0)]
        earlier = np.triu(_beaten(columns, fresh, fresh, within[np.ix_(kinds[fresh], kinds[fresh])]), 1)
        kept = np.append(kept, fresh[~earlier.any(axis=0)])
    return np.sort(order[kept])


def _kinds(demands: Numbers) -> tuple[Chosen, NDArray[np.bool_]]:
    """Return the kind of each way, its number, where ways of a kind ask for the same demands; and whether all that a
    kind asks for another one asks for too (kinds, kinds): if not, no way of the first beats one of the other."""
    asked, kinds = np.unique(np.packbits(demands > 0, axis=1), axis=0, return_inverse=True)
    return kinds.ravel(), ((asked[:, None] & ~asked) == 0).all(axis=2)


def _telling_first(columns: Numbers) -> Numbers:
    """Return what ways ask for (demands, ways), those first by which fewest of some ways ask for no more than
    others."""
    some = columns[:, :: 1 + columns.shape[1] // _SAMPLED_WAYS]
    less = some[:, :, None] <= some[:, None]
    left, telling = np.ones(less.shape[1:], dtype=np.bool_), list[int]()
    for _ in range(_TELLING_DEMANDS):
        telling.append(int((less & left).sum(axis=(1, 2)).argmin()))
        left &= less[telling[-1]]
    return columns[list(dict.fromkeys((*telling, *range(len(columns)))))]


def _beaten(columns: Numbers, some: Chosen, others: Chosen, possible: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which of the ways `some` asks for no more of anything than which of `others`, by what they ask for, `columns`
    (demands, ways). Only `possible` pairs (some, others) are compared: all of them by the first demands, then, by one
    demand after the other, those that are left."""
    for column in columns[:_TELLING_DEMANDS]:
        possible = possible & (column[some][:, None] <= column[others])
    one, other = np.nonzero(possible)
    for column in columns[_TELLING_DEMANDS:]:
        left = column[some[one]] <= column[others[other]]
        one, other = one[left], other[left]
    result = np.zeros_like(possible)
    result[one, other] = True
    return result
