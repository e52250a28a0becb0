"""The compositions of one question: its ways as exact as the answer needs, by arrangement of the model's ends."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from types import MappingProxyType

import numpy as np

from helmsman.planner.strategies.optimal.configurations.rules import Ends
from helmsman.planner.strategies.optimal.pricing.all_blocks import AllBlocks
from helmsman.planner.strategies.optimal.program.compose import ComposeResult, Composition, charged, compose
from helmsman.planner.strategies.optimal.program.relaxation import relaxation
from helmsman.planner.strategies.optimal.program.ways import Chosen, Numbers, Room, Ways, undominated
from helmsman.planner.strategies.optimal.search.simple_compositions import simple
from helmsman.planner.strategies.optimal.search.symmetry import SymmetricWays
from helmsman.scheduler.iteration import PHASES, Phase

SLACK = 1e-3
"""The gain, as a share, below which no better composition is looked for."""

_MOST_LOWERINGS = 8
"""The number of times at most that the ways of a relaxation are lowered themselves."""

_MOST_REPEATS = 3
"""The number of times at most that compositions are looked for once their ways are lowered."""

_LOWERED = 2
"""The number of the best compositions all of whose ways are lowered."""

_CASES = 30
"""The number of divided cases of a search at most."""

_USED = 1e-6
"""Fewer blocks are none."""


@dataclass(frozen=True, slots=True)
class Aim:
    """The objective, seconds of each phase as often as they count; and what each may be at most.

    `name`: in words; `tie`: a phase whose weight only chooses among plans that are equal in what counts."""

    name: str
    weights: Mapping[Phase, float]
    limits: Mapping[Phase, float] = field(default_factory=dict)
    tie: Phase | None = None

    @property
    def counted(self) -> Mapping[Phase, float]:
        """The weights of what the objective counts: those without the tie's."""
        return {phase: weight for phase, weight in self.weights.items() if phase != self.tie}

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases that matter."""
        return tuple(phase for phase in PHASES if phase in self.weights or phase in self.limits)

    @property
    def leading(self) -> Phase:
        """The phase that counts most often; the last one of those."""
        return max(reversed(PHASES), key=lambda phase: self.weights.get(phase, 0.0))


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The best compositions with where their ends are, best first; `bound`: seconds that none beats."""

    best: tuple[tuple[Ends, Composition], ...]
    bound: float


@dataclass(eq=False)
class Compositions:
    """The search over one question's blocks. `less`: by memory, bytes that must stay free beside what is known here;
    `among`: rows of the ways, if not all are allowed; `arrangements`: where the ends may be, if not anywhere; `lost`
    (ways of the blocks, lanes): seconds of waiting that are taken to be lost in order."""

    blocks: AllBlocks | SymmetricWays
    less: dict[str, int] = field(default_factory=dict)
    among: Chosen | None = None
    arrangements: tuple[Ends, ...] | None = None
    lost: Numbers | None = None

    def __post_init__(self) -> None:
        summed = self.blocks.summed
        among = np.arange(len(summed)) if self.among is None else self.among
        self.names = among[undominated(summed.only(among))]
        self.ways = summed.only(self.names)
        self.lowered = np.zeros(len(self.names), dtype=np.bool_)
        self._lower(np.flatnonzero(np.isin(self.names, self.blocks.known)))
        self.likely = np.zeros(0, dtype=np.intp)

    def search(self, aim: Aim, floors: Mapping[Ends, float] | None = None, beat: float = inf) -> SearchResult:
        """The best compositions under `aim` that `beat` so many seconds.

        `floors`: seconds that none beats, by where the ends are, as far as they are known."""
        floors = floors or self.floors(aim)
        compositions: list[tuple[Ends, Composition]] = []
        bound = inf
        for ends in sorted(self.arrangements or self.blocks.arrangements, key=lambda arrangement: floors[arrangement]):
            least = min(beat, compositions[0][1].seconds) if compositions else beat
            room, floor = self.room(ends, aim), floors[ends]
            if floor < least * (1 - SLACK):
                floor = max(floor, self._settled(room))
            if floor < least * (1 - SLACK):
                composed = self._composed(room, least)
                floor = max(floor, composed.bound)
                compositions = sorted(
                    [*compositions, *((ends, composition) for composition in composed.best)],
                    key=lambda pair: pair[1].seconds,
                )
            bound = min(bound, floor)
        return SearchResult(tuple(compositions), bound)

    def floors(self, aim: Aim) -> dict[Ends, float]:
        """By where the ends are, seconds that no composition under `aim` beats, without looking for one."""
        return {ends: self._settled(self.room(ends, aim)) for ends in self.arrangements or self.blocks.arrangements}

    def simple(self, ends: Ends, aim: Aim, resident: int, most: int, fewer: bool) -> tuple[Composition, ...]:
        """At most so many compositions of one way, and of one and the way in row `resident` of the blocks' ways, with
        `fewer` of that too."""
        room, there = self.room(ends, aim), np.flatnonzero(self.names == resident)
        compositions = simple(self._stacked(room)[0], room.room, int(there[0]) if len(there) else None, most, fewer)
        self._lower(
            np.array(sorted({way for composition in compositions for way, _ in composition.counts}), dtype=np.intp)
        )
        return tuple(replace(composition, seconds=self._seconds(room, composition)) for composition in compositions)

    def name(self, way: int) -> int:
        """The row of the blocks' ways that composition way `way` is."""
        return int(self.names[way])

    def counted(self, composition: Composition) -> dict[int, int]:
        """Blocks of each way, by row of the blocks' ways."""
        return {self.name(way): count for way, count in composition.counts}

    def _settled(self, room: "LimitedRoom") -> float:
        """The bound of the relaxation once all of its ways are lowered themselves."""
        bound = inf
        for _ in range(_MOST_LOWERINGS):
            ways, inner = self._stacked(room)
            relaxed = relaxation(charged(ways, inner), inner, self.likely)
            if relaxed is None:
                return inf
            bound, used = relaxed.bound, np.flatnonzero(relaxed.counts > _USED)
            self.likely = np.union1d(self.likely, used)
            if not self._lower(used):
                break
        return bound

    def _composed(self, room: "LimitedRoom", beat: float) -> ComposeResult:
        """The composition; once more where lowering the ways of the best shows that it takes longer than they added up
        to."""
        for _ in range(_MOST_REPEATS):
            ways, inner = self._stacked(room)
            ways = replace(ways, lanes=ways.lanes + self._lost)
            composed = compose(ways, inner, slack=SLACK, cases=_CASES, beat=beat, likely=self.likely)
            used = sorted({way for best in composed.best[:_LOWERED] for way, _ in best.counts})
            if not self._lower(np.array(used, dtype=np.intp)):
                break
            first = composed.best[0] if composed.best else None
            if first is None or self._seconds(room, first, self._lost) <= first.seconds * (1 + SLACK):
                break
        best = tuple(replace(composition, seconds=self._seconds(room, composition)) for composition in composed.best)
        return replace(composed, best=tuple(sorted(best, key=lambda composition: composition.seconds)))

    @cached_property
    def _lost(self) -> Numbers:
        """Seconds (ways, lanes) of waiting that are taken to be lost."""
        return np.zeros((1, 1)) if self.lost is None else self.lost[self.names]

    def _seconds(self, room: "LimitedRoom", composition: Composition, more: Numbers | None = None) -> float:
        """The objective of a composition by what is known of its ways, which ask for `more` of some lanes."""
        ways, counts = (np.array(column) for column in zip(*composition.counts, strict=True))
        lanes = self.ways.lanes if more is None else self.ways.lanes + more
        return float(room.room.seconds(room.room.ends + counts @ lanes[ways]))

    def _lower(self, ways: Chosen) -> bool:
        """Whether any of `ways` was a sum of parts until now. What is known of its prompts is known of all ways that
        have the same ones."""
        fresh = [int(way) for way in ways if not self.lowered[way]]
        for way in fresh:
            exact = self.blocks.exact(int(self.names[way]))
            self.ways.lanes[way] = exact
            self.lowered[way] = True
            if "prefill" in self.blocks.phases:
                alike = np.flatnonzero(self._prompts == self._prompts[way])
                own = np.flatnonzero(self.blocks.phase == self.blocks.phases.index("prefill"))
                self.ways.lanes[np.ix_(alike, own)] = exact[own]
        return bool(fresh)

    @cached_property
    def _prompts(self) -> Chosen:
        return self.blocks.prompts[self.names]

    def _stacked(self, room: "LimitedRoom") -> tuple[Ways, Room]:
        """Ways with their limited lanes as if they were memories."""
        return Ways(self.ways.lanes, self.kept(room), self.ways.coming), room.room

    def kept(self, room: "LimitedRoom") -> Numbers:
        """Return what every way takes (ways, memories and limited lanes)."""
        return np.hstack([self.ways.kept, self.ways.lanes[:, room.limited]])

    def outside(self, totals: Numbers, room: "LimitedRoom", phase: int) -> float:
        """Seconds of a phase's chain that are not in blocks, less those of its busiest lane in `totals`."""
        lanes = np.flatnonzero(self.blocks.phase == phase)
        return float(room.room.ends[lanes[0]] - totals[lanes].max())

    def room(self, ends: Ends, aim: Aim) -> "LimitedRoom":
        """Return what there is for blocks."""
        return limited_room(self.blocks, ends, aim, self.less)


@dataclass(frozen=True, eq=False)
class LimitedRoom:
    """A room some of whose lanes are `limited`, which follow its memories."""

    room: Room
    limited: Chosen


def limited_room(
    blocks: AllBlocks | SymmetricWays, ends: Ends, aim: Aim, less: Mapping[str, int] = MappingProxyType({})
) -> LimitedRoom:
    """Return what there is for `blocks` between ends of the model, under `aim`; `less`: by memory, bytes of that which
    must stay free."""
    limits = np.array([aim.limits.get(phase, inf) for phase in blocks.phases])[blocks.phase]
    limited = np.flatnonzero(np.isfinite(limits))
    seconds, free = blocks.ends(*ends), blocks.free(ends) - [less.get(name, 0) for name in blocks.memories]
    buffers = blocks.buffers
    room = Room(
        blocks=blocks.count,
        ends=seconds,
        weights=np.array([aim.weights.get(phase, 0.0) for phase in blocks.phases]),
        phase=blocks.phase,
        free=np.concatenate([free, (limits - seconds)[limited]]),
        buffers=np.hstack([buffers, np.zeros((len(buffers), len(limited)))]),
    )
    return LimitedRoom(room, limited)
