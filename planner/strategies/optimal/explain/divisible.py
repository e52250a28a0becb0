"""The value of a question near its plan where blocks and rows may be divided: what has slopes, unlike a plan's own.

Whole blocks change in steps: a byte more changes nothing until it is enough for one more matrix. Divided, the least
seconds V are the least of a linear program by arrangement of the ends, whose ways need no more room on their way than
the plan's. At its solution V is the Lagrangian, and dV is that of the Lagrangian with counts and duals as they are
(envelope theorem), which needs no other solution."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import Protocol

import numpy as np

from helmsman.lowering.lower import lower
from helmsman.lowering.placement import batches_together
from helmsman.planner.prediction.predict import mean_step, pass_seconds
from helmsman.planner.strategies.optimal.configurations.block_ways import BlockWay
from helmsman.planner.strategies.optimal.configurations.rules import Assignment, Ends, place
from helmsman.planner.strategies.optimal.configurations.stored_blocks import fullest
from helmsman.planner.strategies.optimal.explain.quantities import Quantity
from helmsman.planner.strategies.optimal.pricing.all_blocks import AllBlocks
from helmsman.planner.strategies.optimal.pricing.lowered_parts import CHAIN
from helmsman.planner.strategies.optimal.program.relaxation import Relaxation, dual, relaxation
from helmsman.planner.strategies.optimal.program.ways import Chosen, Numbers, Room, Ways
from helmsman.planner.strategies.optimal.search.compositions import Aim, Compositions
from helmsman.planner.strategies.streaming.question import Question
from helmsman.scheduler.iteration import prefill

_USED = 1e-6
"""The number of blocks below which a way is not used."""

_MARGIN = 0.01
"""The share by which ways may change where something is changed."""

Lane = tuple[str, str, int]
"""A phase, a name, and which of those of that name."""


@dataclass(frozen=True, eq=False)
class DivisibleSolution:
    """The least `seconds` with what they are made of: the `ends`, blocks of every way by row (`counts`), and seconds
    that a second of every lane adds (`lanes`, called `names`), and a byte less of every memory, or a second less of a
    limit (`free`).

    `near`: solutions of all arrangements of the ends, best first; `likely`: rows of ways that almost the same question
    must lower to tell whether it needs them."""

    seconds: float
    ends: Ends
    counts: Mapping[int, float] = field(default_factory=dict)
    names: tuple[Lane, ...] = ()
    lanes: Numbers = field(default_factory=lambda: np.zeros(0))
    free: Numbers = field(default_factory=lambda: np.zeros(0))
    near: "tuple[DivisibleSolution, ...]" = ()
    likely: tuple[int, ...] = ()


class NearbyQuestion(Protocol):
    """A question near its plan."""

    @property
    def question(self) -> Question:
        """Return what is asked, about which machine."""

    def with_more(self, quantity: Quantity, factor: float) -> "NearbyQuestion":
        """On a machine with `factor` times as much of something."""

    def solved(self, near: tuple[DivisibleSolution, ...] = ()) -> DivisibleSolution | None:
        """The least seconds; None where nothing fits. `near`: solutions of almost the same question, best first."""

    def priced(self, solved: DivisibleSolution) -> Numbers:
        """The Lagrangian (phases, then what memories and limits add) of a solution found here or elsewhere."""


@dataclass(frozen=True, eq=False)
class DivisibleQuestion:
    """A question about `blocks`, `among` rows of whose ways it chooses. `less`: bytes less by memory."""

    blocks: AllBlocks
    question: Question
    aim: Aim
    among: Chosen
    less: Mapping[str, int] = field(default_factory=dict)

    def with_more(self, quantity: Quantity, factor: float) -> "DivisibleQuestion":
        """See NearbyQuestion."""
        if quantity.what == "capacity":
            size = round((1 - factor) * quantity.size)
            return replace(self, less={**self.less, quantity.name: self.less.get(quantity.name, 0) + size})
        question = on_machine(self.question, quantity, factor)
        blocks = divisible_blocks(question, self.blocks)
        return replace(self, question=question, blocks=blocks)

    def solved(self, near: tuple[DivisibleSolution, ...] = ()) -> DivisibleSolution | None:
        """See NearbyQuestion."""
        solutions = (
            [] if near else [solution for solution in map(self._at, self.blocks.everywhere) if solution is not None]
        )
        for neighbour in near:
            if self._bound(neighbour) < min((one.seconds for one in solutions), default=inf):
                solutions += [one for one in (self._at(neighbour.ends, neighbour.likely),) if one is not None]
        order = sorted(solutions, key=lambda solution: solution.seconds)
        return replace(order[0], near=tuple(order)) if order else None

    def priced(self, solved: DivisibleSolution) -> Numbers:
        """See NearbyQuestion."""
        room, limited = self._room(solved.ends)
        weights, lanes = self._weights(solved), self.totals(solved)
        kept = np.zeros(len(room.free) - len(limited))
        for row, count in solved.counts.items():
            kept += count * self.blocks.summed.kept[row]
        taken = np.concatenate([kept, (lanes - room.ends)[limited]])
        of_phases = [float((lanes * weights)[self.blocks.phase == index].sum()) for index in range(len(room.weights))]
        return np.array([*of_phases, float((taken - room.free) @ solved.free)])

    def totals(self, solved: DivisibleSolution) -> Numbers:
        """Seconds of every lane of a solution."""
        lanes = self._room(solved.ends)[0].ends.copy()
        for row, count in solved.counts.items():
            lanes += count * self.blocks.exact(row)
        return lanes

    @cached_property
    def compositions(self) -> Compositions:
        """Return what is composed."""
        return Compositions(self.blocks, less=dict(self.less), among=self.among)

    def _room(self, ends: Ends) -> tuple[Room, Chosen]:
        """Return what there is beside what is on its way, and which lanes are limited."""
        room = self.compositions.room(ends, self.aim)
        coming = self.blocks.summed.coming[self.among].max(axis=0)
        return replace(room.room, free=room.room.free - coming @ room.room.buffers), room.limited

    def _at(self, ends: Ends, likely: tuple[int, ...] = ()) -> DivisibleSolution | None:
        """The least seconds of one arrangement of the ends, of ways lowered themselves; `likely`: rows of ways that are
        probably needed."""
        room, limited = self._room(ends)
        names, fresh = self.compositions.names, likely
        while True:
            for row in fresh:
                self.blocks.exact(row)
            relaxed = relaxation(self._ways(limited), room, np.flatnonzero(np.isin(names, self.blocks.known)))
            if relaxed is None:
                return None
            fresh = tuple(int(row) for row in names[relaxed.counts > _USED] if row not in self.blocks.settled)
            if not fresh:
                return self._solution(relaxed, ends, limited)

    def _ways(self, limited: Chosen) -> Ways:
        """The ways as they are known; limited lanes are as if they were memories."""
        names = self.compositions.names
        ways = self.blocks.summed.only(names)
        for way in np.flatnonzero(np.isin(names, self.blocks.known)):
            ways.lanes[way] = self.blocks.settled[int(names[way])]
        return Ways(ways.lanes, np.hstack([ways.kept, ways.lanes[:, limited]]), ways.coming)

    def _bound(self, near: DivisibleSolution) -> float:
        """Seconds that no solution beats which has the ends of one of almost the same question."""
        room, limited = self._room(near.ends)
        ways = self._ways(limited)
        return dual(ways, room, self._weights(near), near.free, np.zeros(len(ways))).bound

    def _solution(self, relaxed: Relaxation, ends: Ends, limited: Chosen) -> DivisibleSolution:
        """A relaxation; `likely` are the ways that are as good as those it needs, as far as their parts say."""
        names, parts = self.compositions.names, self.blocks.summed.only(self.compositions.names)
        used = np.flatnonzero(relaxed.counts > 0)
        counts = {int(names[way]): float(relaxed.counts[way]) for way in used}
        costs = parts.lanes @ relaxed.lanes + np.hstack([parts.kept, parts.lanes[:, limited]]) @ relaxed.prices
        good = costs <= self._least(relaxed, limited) * (1 + _MARGIN)
        likely = tuple(int(row) for row in names[good] if int(row) in self.blocks.settled)
        return DivisibleSolution(relaxed.bound, ends, counts, self._lanes, relaxed.lanes, relaxed.prices, likely=likely)

    def _least(self, relaxed: Relaxation, limited: Chosen) -> float:
        """Return what a block of a way costs that a relaxation needs."""
        ways = self._ways(limited)
        return float((ways.lanes @ relaxed.lanes + ways.kept @ relaxed.prices).min())

    def _weights(self, solved: DivisibleSolution) -> Numbers:
        """Seconds that a second of every lane here adds in a solution found elsewhere."""
        theirs = dict(zip(solved.names, solved.lanes, strict=True))
        return np.array([theirs.get(name, 0.0) for name in self._lanes])

    @cached_property
    def _lanes(self) -> tuple[Lane, ...]:
        """The lanes by name; chains beside a busy link, which are named by their losses, by number."""
        seen = Counter[tuple[str, str]]()
        lanes = []
        for phase, lane in self.blocks.lanes:
            name = f"{CHAIN} beside {lane.rpartition(' ')[2]}" if lane.startswith(f"{CHAIN} beside ") else lane
            lanes.append((phase, name, seen[phase, name]))
            seen[phase, name] += 1
        return tuple(lanes)


@dataclass(frozen=True)
class OneSide:
    """One side that has everything: its seconds are those of its plan, `chosen`."""

    question: Question
    chosen: Assignment
    aim: Aim

    def with_more(self, quantity: Quantity, factor: float) -> "OneSide":
        """See NearbyQuestion."""
        return replace(self, question=on_machine(self.question, quantity, factor))

    def solved(self, near: tuple[DivisibleSolution, ...] = ()) -> DivisibleSolution | None:
        """See NearbyQuestion."""
        if not self.question.fits(place(self.question.frame, self.chosen)):
            return None
        return DivisibleSolution(float(sum(self._phases())), (self.chosen.embedding, self.chosen.output))

    def priced(self, solved: DivisibleSolution) -> Numbers:
        """See NearbyQuestion."""
        return np.array([*self._phases(), 0.0])

    def _phases(self) -> Iterator[float]:
        """Seconds of each phase, as often as it counts."""
        placed = place(self.question.frame, self.chosen)
        costs, together = self.question.costs(placed), batches_together(placed)
        for phase in self.aim.phases:
            iteration = prefill if phase == "prefill" else mean_step
            graph = lower(placed, iteration(placed.workload, together))
            yield self.aim.weights.get(phase, 0.0) * pass_seconds(graph, costs)


def beside(blocks: AllBlocks, used: Iterable[BlockWay]) -> Chosen:
    """Rows of the ways that need no more room on their way than the ways that are `used`."""
    rows = sorted({blocks.ways.index(way) for way in used})
    most = blocks.summed.coming[rows].max(axis=0) * (1 + _USED)
    return np.flatnonzero((blocks.summed.coming <= most).all(axis=1))


def divisible_blocks(question: Question, blocks: AllBlocks) -> AllBlocks:
    """`blocks` of the machine of a question, whose rows are divided anywhere."""
    frame = question.frame
    stored = replace(frame, store=blocks.frame.store)
    return replace(blocks, frame=stored, costs=question.costs(place(frame, fullest(stored))), fractional=True)


def on_machine(question: Question, quantity: Quantity, factor: float) -> Question:
    """The question for a machine with `factor` times as much of something."""
    old = question.frame.roles
    new = old.on(quantity.times(old.hardware, factor))
    return replace(question, frame=replace(question.frame, roles=new))
