"""The exhaustive search of operation splits: every [i, j), compressed or not, from storage or not; pure numbers.

Every candidate is [i, j) of the units, one of the configurations `compress` and one set of operations whose weights
in [i, j) come from storage, uncompressed there, so out of both link and unpacking (E-PARK-16). Ties are broken by
(L, |CPU - H2D|, S2D, i, j, set of stored operations, order of `compress`), the first three to 1e-12 of L (E-PARK-15).

Sets of stored operations that cannot win are not evaluated, range by range. (1) A set with an operation outside of
[i, j) is the same candidate as the set without it. (2) L >= S2D, and S2D only grows with the set: a set whose S2D
exceeds the least L of [i, j) so far loses to that, and so do all larger sets. Both are exact, ties included.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from helmsman.planner.strategies.op_split.candidates import Candidates
from helmsman.planner.strategies.op_split.follow import follow
from helmsman.planner.strategies.op_split.layer_table import LayerTable, storable
from helmsman.planner.strategies.op_split.options import Mask, SearchOptions
from helmsman.planner.strategies.op_split.pipeline import Indices, LaneSeconds, Seconds, Section, taken
from helmsman.schemas.errors import BadInputError, InfeasibleError

TIE = 1e-12
"""Relative difference of times that is no difference: sums in another order differ by less."""

MOST_SETS = 1 << 14
"""Sets of stored operations that are tried; a layer has about seven weights, so 128 sets at most."""


@dataclass(frozen=True, slots=True)
class Split:
    """One split: the accelerator computes units [start, stop). Seconds per layer, of all batches."""

    start: int
    stop: int
    compressed: bool
    from_storage: tuple[str, ...]
    seconds: float
    cpu: float
    h2d: float
    decompress: float
    s2d: float
    gpu: float


@dataclass(frozen=True, eq=False)
class SplitSearch:
    """Every range with its best configuration; entry r of all arrays is about [start[r], stop[r]).

    `lanes.total` is infinite where no configuration is feasible; `compressed[r]` and `sets[set_index[r]]` say which
    configuration is best there. `evaluated` counts the candidates that were priced.
    """

    start: Indices
    stop: Indices
    lanes: LaneSeconds
    compressed: Mask
    set_index: Indices
    sets: tuple[tuple[str, ...], ...]
    evaluated: int

    @cached_property
    def best(self) -> Split:
        """The best split. Raises InfeasibleError when nothing is feasible."""
        first = next(self._in_order(), None)
        if first is None:
            raise InfeasibleError("no operation split is feasible", field="feasible")
        return first

    def ranked(self, k: int) -> tuple[Split, ...]:
        """The k best feasible splits, best first, each range once; the empty ranges are one split."""
        return tuple(split for split, _ in zip(self._in_order(), range(k), strict=False))

    def at(self, start: int, stop: int) -> Split:
        """The best configuration of the range [start, stop). Raises BadInputError for one that was not searched."""
        matches = np.flatnonzero((self.start == start) & (self.stop == stop))
        if not len(matches):
            raise BadInputError("not a range of this search", field="split", value=(start, stop))
        return self._split(int(matches[0]))

    def _in_order(self) -> Iterator[Split]:
        empty = self.start == self.stop
        left = np.isfinite(self.lanes.total)
        while left.any():
            row = self._least(left)
            yield self._split(row)
            left = left & ~empty if empty[row] else left & (np.arange(len(left)) != row)

    def _least(self, left: Mask) -> int:
        """The first row that is not worse than any other of `left`; rows are in the order of i, then j."""
        rows = np.flatnonzero(left)
        lanes = taken(self.lanes, rows)
        near, tied = TIE * float(lanes.total.min()), np.ones(len(rows), dtype=np.bool_)
        for key in (lanes.total, np.abs(lanes.cpu - lanes.h2d), lanes.s2d):
            tied &= key <= key[tied].min() + near
        return int(rows[tied.argmax()])

    def _split(self, row: int) -> Split:
        lanes = self.lanes
        return Split(
            start=int(self.start[row]),
            stop=int(self.stop[row]),
            compressed=bool(self.compressed[row]),
            from_storage=self.sets[int(self.set_index[row])],
            seconds=float(lanes.total[row]),
            cpu=float(lanes.cpu[row]),
            h2d=float(lanes.h2d[row]),
            decompress=float(lanes.decompress[row]),
            s2d=float(lanes.s2d[row]),
            gpu=float(lanes.gpu[row]),
        )


def search(table: LayerTable, options: SearchOptions) -> SplitSearch:
    """Every split of the layer under `options`; O(n^2) per configuration and set of stored operations."""
    candidates = Candidates(table, options)
    start, stop, best = candidates.start, candidates.stop, _Best(candidates)
    everywhere, nothing = np.arange(len(start)), np.zeros(len(start))
    best.improve(everywhere, (), nothing, options.compress)
    if options.storage:
        for stored, rows, storage in _useful_sets(table, candidates, best.lanes.total):
            best.improve(rows, stored, storage, options.compress)
    if options.batches > 1 and options.flow is not None and not options.serial and not options.printed:
        follow(candidates, options.flow, best.lanes, best.compressed, best.set_index, best.sets)
    return SplitSearch(start, stop, best.lanes, best.compressed, best.set_index, tuple(best.sets), best.evaluated)


class _Best:
    """The best configuration of every range so far."""

    def __init__(self, candidates: Candidates) -> None:
        count = len(candidates.start)
        self.candidates = candidates
        self.lanes = LaneSeconds(*(np.full(count, np.inf) for _ in range(6)))
        self.compressed = np.zeros(count, dtype=np.bool_)
        self.set_index = np.zeros(count, dtype=np.int64)
        self.sets: list[tuple[str, ...]] = []
        self.evaluated = 0

    def improve(self, rows: Indices, stored: tuple[str, ...], storage: Seconds, compress: tuple[bool, ...]) -> None:
        """Take `stored`, in every configuration, where it is better; equal ones stay as they are."""
        for compressed in compress:
            section = self.candidates.section(rows, compressed, stored, storage)
            self.evaluated += len(rows)
            lanes = self.candidates.lanes(section)
            left = np.flatnonzero(_better(lanes, self.lanes, rows))
            if len(left):
                self._compare(rows[left], taken(section, left), taken(lanes, left), compressed, stored)
        self.sets.append(stored)

    def _compare(
        self, rows: Indices, section: Section, lanes: LaneSeconds, compressed: bool, stored: tuple[str, ...]
    ) -> None:
        """Take what fits and is still better with all that delays it."""
        lanes = self.candidates.shared(rows, section, lanes, compressed, stored)
        left = np.flatnonzero(_better(lanes, self.lanes, rows))
        left = left[self.candidates.fits(rows[left], compressed, stored)]
        if len(left):
            rows, section, lanes = rows[left], taken(section, left), taken(lanes, left)
            lanes = self.candidates.delayed(rows, section, lanes, compressed, stored)
            better = _better(lanes, self.lanes, rows)
            self._take(rows[better], taken(lanes, better), compressed)

    def _take(self, rows: Indices, lanes: LaneSeconds, compressed: bool) -> None:
        for name in LaneSeconds.__slots__:
            getattr(self.lanes, name)[rows] = getattr(lanes, name)
        self.compressed[rows] = compressed
        self.set_index[rows] = len(self.sets)


def _better(new: LaneSeconds, old: LaneSeconds, rows: Indices) -> Mask:
    """Where `new` comes before the entries `rows` of `old` by (L, |CPU - H2D|, S2D)."""
    total = old.total[rows]
    better = new.total < total * (1 - TIE)
    tied = np.flatnonzero(~better & (new.total <= total * (1 + TIE)) & np.isfinite(new.total))
    if len(tied):
        better[tied] = _narrower(taken(new, tied), taken(old, rows[tied]))
    return np.asarray(better)


def _narrower(new: LaneSeconds, old: LaneSeconds) -> Mask:
    """Of splits with equal L: where `new` comes before `old` by (|CPU - H2D|, S2D)."""
    near, skew, skew_old = TIE * old.total, np.abs(new.cpu - new.h2d), np.abs(old.cpu - old.h2d)
    fewer = (skew < skew_old - near) | ((skew <= skew_old + near) & (new.s2d < old.s2d - near))
    return np.asarray(fewer)


def _useful_sets(
    table: LayerTable, candidates: Candidates, limit: Seconds
) -> Iterator[tuple[tuple[str, ...], Indices, Seconds]]:
    """Every set of stored operations with the rows where it may win, and its S2D there; in the order of index.

    `limit` is the least L by row so far, and falls as the sets given are tried. Bit b of a set's index is operation b;
    sets of lower operations come first. Raises BadInputError when more than MOST_SETS sets may win.
    """
    slack = 1 + 2 * TIE
    useful: list[tuple[tuple[str, ...], Indices, Seconds]] = [((), np.arange(len(limit)), np.zeros(len(limit)))]
    for op in storable(table):
        seconds = candidates.storage(op)
        for stored, rows, storage in tuple(useful):
            more = seconds[rows]
            grown = storage + more
            keep = (more > 0) & (grown <= limit[rows] * slack)
            if not keep.any():
                continue
            if len(useful) == MOST_SETS:
                raise _too_many(len(storable(table)))
            useful.append(((*stored, op), rows[keep], grown[keep]))
            yield useful[-1]


def _too_many(count: int) -> BadInputError:
    problem = f"{count} operations whose weights may come from storage: more than {MOST_SETS} sets of them may win"
    remedy = "leave `nvme` out, or empty the storage column of operations in the `table`"
    return BadInputError(problem, field="nvme", value=count, remedy=remedy)
