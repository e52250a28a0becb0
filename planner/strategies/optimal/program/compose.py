"""How many blocks run in which way: the least seconds, with a proof.

    least  sum over phases of weight x max over its lanes r of (E_r + sum_w n_w a_wr)
    with   sum_w n_w k_wm + (what is on its way) <= K_m  for every memory m,   sum_w n_w = blocks

Compositions are divided by how much of each flow is on its way: that of a *case* lies in a box. The relaxation of a
case bounds all of it; cases are looked at in order of their bounds and divided where the bound leaves a doubt. Within
a case whole blocks are found around the relaxation's ways: the answer is near the best, and the bound holds."""

from collections import Counter
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count
from math import ceil, floor, inf

import numpy as np

from helmsman.planner.strategies.optimal.program.relaxation import Relaxation, relaxation
from helmsman.planner.strategies.optimal.program.ways import Chosen, Numbers, Room, Ways

_ROUNDING = 1e-9
"""Relative difference that is none."""

_MOST_ROUNDED = 4
"""The number of the relaxation's ways whose counts are rounded at most."""

_ROUNDING_REACH = 2
"""The number of blocks by which rounded counts differ from the relaxation's at most."""

_MOST_ODD = 64
"""The number of other ways of which one block is tried beside rounded counts at most."""


@dataclass(frozen=True, slots=True)
class Composition:
    """The number of blocks of each way, (way, count) in order of ways, and the seconds of the objective."""

    counts: tuple[tuple[int, int], ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class ComposeResult:
    """The best compositions, best first; `bound`: seconds that none beats; `prices` (memories): seconds that one more
    byte of a memory saves where blocks may be divided."""

    best: tuple[Composition, ...]
    bound: float
    prices: tuple[float, ...]


def compose(
    ways: Ways,
    room: Room,
    keep: int = 8,
    cases: int = 1000,
    slack: float = 0.0,
    beat: float = inf,
    likely: Chosen | None = None,
) -> ComposeResult:
    """Return the `keep` best compositions that are near relaxations, of which no more than `cases` are divided. None
    fits: `bound` is infinite.

    What is at most `slack` better than the best known, as a share of it, is not looked for, nor what does not `beat`
    so many seconds. `likely`: ways that the relaxation probably needs."""
    search = _Search(ways, room, keep, cases, slack, beat)
    search.run(likely)
    return search.result()


@dataclass(frozen=True, eq=False)
class _Case:
    """Compositions whose flows lie in the box low <= flow <= high; `names`: its ways; `room` beside `low`."""

    low: Numbers
    high: Numbers
    names: Chosen
    ways: Ways
    room: Room
    relaxed: Relaxation


@dataclass
class _Search:
    """The search of one program. `undivided`: cases that may be divided; `closed`: the least bound of cases that were
    given up; `waiting`: cases by bound."""

    ways: Ways
    room: Room
    keep: int
    undivided: int
    slack: float
    beat: float
    best: list[Composition] = field(default_factory=list)
    closed: float = inf
    root: Relaxation | None = None
    waiting: list[tuple[float, int, _Case]] = field(default_factory=list)
    serial: "count[int]" = field(default_factory=count)

    def run(self, likely: Chosen | None) -> None:
        """Look at cases until none can hold anything better."""
        most = self.ways.coming.max(axis=0, initial=0.0)
        self._add(np.zeros(len(most)), most, np.arange(len(self.ways)), likely)
        self.root = self.waiting[0][2].relaxed if self.waiting else None
        while self.waiting:
            bound, _, case = heappop(self.waiting)
            if bound >= self.worst:
                self.closed = min(self.closed, bound)
            elif not self._divide(case):
                self.closed = min(self.closed, case.relaxed.bound)

    def result(self) -> ComposeResult:
        """Return the best compositions, and the bound."""
        best, bound = tuple(self.best), self.closed
        prices = tuple(map(float, self.root.prices)) if self.root is not None else ()
        bound = min(bound, best[0].seconds) if best else bound
        return ComposeResult(best, bound, prices)

    @property
    def worst(self) -> float:
        """Seconds that a composition must beat to be looked for."""
        if self.slack or not self.best:
            return self._near
        return self.best[-1].seconds if len(self.best) == self.keep else self.beat

    @property
    def _near(self) -> float:
        """Whether so many seconds are not much more than the least known."""
        least = min(self.beat, self.best[0].seconds) if self.best else self.beat
        return least * (1 - self.slack)

    def _add(self, low: Numbers, high: Numbers, names: Chosen, likely: Chosen | None = None) -> None:
        """Another case, of ways among `names`; `likely`: ways that its relaxation probably needs."""
        names = names[(self.ways.coming[names] <= high).all(axis=1)]
        room = replace(self.room, free=self.room.free - low @ self.room.buffers)
        inner = self.ways.only(names)
        known = None if likely is None else np.flatnonzero(np.isin(names, likely))
        relaxed = relaxation(charged(inner, room, low), room, known)
        if relaxed is None:
            return
        if relaxed.bound >= self.worst:
            self.closed = min(self.closed, relaxed.bound)
            return
        case = _Case(low, high, names, inner, room, relaxed)
        self._round(case)
        heappush(self.waiting, (relaxed.bound, next(self.serial), case))

    def _divide(self, case: _Case) -> bool:
        """Two smaller cases instead of one whose relaxation has more on its way than it is charged for, if that may
        change what is known."""
        used = case.ways.coming[case.relaxed.counts > _ROUNDING].max(axis=0, initial=0.0)
        worth = np.maximum(0.0, used - case.low) * (self.room.buffers @ case.relaxed.prices)
        flow = int(np.argmax(worth))
        if used[flow] <= case.low[flow] or (self.best and worth[flow] <= self.slack * self.best[0].seconds):
            return False
        self.undivided -= 1
        if self.undivided < 0:
            return False
        sizes = case.ways.coming[:, flow]
        below, above = case.high.copy(), case.low.copy()
        below[flow] = max(case.low[flow], sizes[sizes < used[flow]].max(initial=0.0))
        above[flow] = used[flow]
        likely, names = case.names[case.relaxed.counts > _ROUNDING], self._worthwhile(case)
        self._add(case.low, below, names, likely)
        self._add(above, case.high, names, likely)
        return True

    def _worthwhile(self, case: _Case) -> Chosen:
        """The ways of which a block leaves room for something better."""
        some = case.relaxed.bound + case.relaxed.reduced < self.worst
        self.closed = self.closed if some.all() else min(self.closed, self.worst)
        return case.names[some]

    def _round(self, case: _Case) -> None:
        """Whole counts near the relaxation's, of its ways alone and beside one odd block of another."""
        order = np.argsort(-case.relaxed.counts, kind="stable")[:_MOST_ROUNDED]
        main = order[case.relaxed.counts[order] > _ROUNDING]
        self._judge(case, main, _near(case.relaxed.counts[main], case.room.blocks))
        odd = np.argsort(case.relaxed.reduced, kind="stable")[:_MOST_ODD]
        odd = odd[case.relaxed.bound + case.relaxed.reduced[odd] < self.worst]
        rows = _near(case.relaxed.counts[main], case.room.blocks - 1)
        if len(odd) and len(rows):
            self._judge(case, main, rows, odd)

    def _judge(self, case: _Case, names: Chosen, rows: Numbers, odd: Chosen | None = None) -> None:
        """Keep the best of `rows` (compositions, ways of `names`), or of each of them beside one block of each `odd`
        way."""
        ways, beside = case.ways.only(names), _nothing(case.ways) if odd is None else case.ways.only(odd)
        lanes = self.room.ends + rows @ ways.lanes
        seconds = self.room.busiest(beside.lanes, lanes)
        promising = np.flatnonzero(seconds < self.worst)
        if not len(promising):
            return
        one, row = np.divmod(promising, len(rows))
        coming = np.stack([np.where(rows > 0, sizes, 0.0).max(axis=1) for sizes in ways.coming.T], axis=1)
        need = (rows @ ways.kept)[row] + beside.kept[one]
        need += np.maximum(coming[row], beside.coming[one]) @ self.room.buffers
        free = self.room.free
        promising = promising[(need <= free + _ROUNDING * np.maximum(1.0, np.abs(free))).all(axis=1)]
        for place in promising[np.argsort(seconds[promising], kind="stable")[: self.keep]]:
            if seconds[place] >= self.worst:
                return
            other, own = divmod(int(place), len(rows))
            counts = Counter({int(case.names[way]): int(count) for way, count in zip(names, rows[own], strict=True)})
            counts.update([] if odd is None else [int(case.names[odd[other]])])
            self._record(tuple(sorted((+counts).items())), float(seconds[place]))

    def _record(self, counts: tuple[tuple[int, int], ...], seconds: float) -> None:
        if all(counts != composition.counts for composition in self.best):
            self.best.append(Composition(counts, seconds))
            self.best.sort(key=lambda composition: (composition.seconds, composition.counts))
            del self.best[self.keep :]


def charged(ways: Ways, room: Room, low: Numbers | float = 0.0) -> Ways:
    """Ways that also keep their part of what is on its way beyond `low`: the most is at least the mean."""
    more = np.maximum(0.0, ways.coming - low) @ room.buffers / room.blocks
    return replace(ways, kept=ways.kept + more)


def _nothing(ways: Ways) -> Ways:
    """A block that asks for nothing."""
    return Ways(*(np.zeros((1, columns.shape[1])) for columns in (ways.lanes, ways.kept, ways.coming)))


def _near(counts: Numbers, blocks: int) -> Numbers:
    """Whole counts that add up to `blocks`, each but the first near one of `counts` (rows, ways)."""
    ranges = [np.arange(floor(count) - _ROUNDING_REACH, ceil(count) + _ROUNDING_REACH + 1.0) for count in counts[1:]]
    others = np.stack(np.meshgrid(*ranges), axis=-1).reshape(-1, len(ranges)) if ranges else np.zeros((1, 0))
    rows = _completed(others[(others >= 0).all(axis=1)], blocks)
    return np.asarray(rows[:, np.roll(np.arange(len(counts)), 1)])


def _completed(rows: Numbers, blocks: int) -> Numbers:
    """Rows of counts with one more way, which has the rest of `blocks`; those that leave one are kept."""
    rest = blocks - rows.sum(axis=1, keepdims=True)
    return np.asarray(np.hstack([rows, rest])[rest[:, 0] >= 0])
