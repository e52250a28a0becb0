"""The ways to run a block on any accelerator of a machine, in numbers: those of each, side by side.

A way is between the host and one accelerator. Lanes and memories have one column each, whoever uses them: what the
host, its memory and the chain are asked for adds up over accelerators. So a composition may divide blocks among
accelerators at will; that blocks follow each other in ranges, or that hidden states cross in between, costs nothing
here, and a bound on compositions is one on every such plan."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import starmap

import numpy as np

from helmsman.lowering.graph import Task
from helmsman.planner.cost.model import CostModel
from helmsman.planner.machine import Roles
from helmsman.planner.strategies.optimal.configurations.arrangements import (
    everywhere,
    first_of_alike,
    outside_tasks,
    used_bytes,
    working,
)
from helmsman.planner.strategies.optimal.configurations.block_ways import BlockWay
from helmsman.planner.strategies.optimal.configurations.offered_ways import offered
from helmsman.planner.strategies.optimal.configurations.rules import Ends, Shares, Side
from helmsman.planner.strategies.optimal.pricing.blocks import Blocks
from helmsman.planner.strategies.optimal.pricing.joined_lanes import JoinedLanes
from helmsman.planner.strategies.optimal.pricing.joined_memories import JoinedMemories
from helmsman.planner.strategies.optimal.pricing.lane_rotation import Lane, Names, called, turned
from helmsman.planner.strategies.optimal.pricing.model_ends import of_ends
from helmsman.planner.strategies.optimal.pricing.twins import alike, twins
from helmsman.planner.strategies.optimal.program.ways import Chosen, Numbers, Ways
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.scheduler.iteration import PHASES, Phase


@dataclass(frozen=True)
class KnownParts:
    """The parts known of a question on machines that differ in their figures alone: `ways`, tasks of `blocks` and the
    shares with which those are lowered (`panels`) by accelerator; tasks `outside` blocks and bytes of every memory that
    are `used` by where the ends are."""

    ways: dict[int, tuple[BlockWay, ...]] = field(default_factory=dict)
    panels: dict[int, Shares] = field(default_factory=dict)
    blocks: dict[int, dict[object, tuple[Task, ...]]] = field(default_factory=dict)
    outside: dict[tuple[Ends, Phase], tuple[Task, ...]] = field(default_factory=dict)
    used: dict[Ends, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True)
class AllBlocks:
    """The demands of blocks in some `phases`, on any of a frame's accelerators. `costs`: prices; `fractional`: as for
    the blocks of one; `settled`: ways that were lowered themselves, by row."""

    frame: Frame
    costs: CostModel
    phases: tuple[Phase, ...] = PHASES
    fractional: bool = False
    parts: KnownParts = field(default_factory=KnownParts, compare=False, repr=False)
    settled: dict[int, Numbers] = field(default_factory=dict, init=False, compare=False, repr=False)

    @cached_property
    def members(self) -> tuple[Blocks, ...]:
        """By accelerator."""
        return tuple(starmap(self._member, enumerate(self.frame.roles.per_accelerator)))

    def _member(self, on: int, roles: Roles) -> Blocks:
        frame, lowered = replace(self.frame, roles=roles), self.parts.blocks.setdefault(on, {})
        if on not in self.parts.ways:
            self.parts.ways[on] = offered(frame, "prefill" in self.phases)
        away = self.frame.roles.accelerators
        blocks = Blocks(frame, self.parts.ways[on], self.costs, self.phases, self.fractional, lowered, away=away)
        if on not in self.parts.panels:
            self.parts.panels[on] = blocks.shares
        return replace(blocks, panels=self.parts.panels[on])

    def only(self, rows: Chosen) -> "AllBlocks":
        """Return these blocks with some of their ways, which keep their order."""
        block_ways: dict[int, tuple[BlockWay, ...]] = dict.fromkeys(range(len(self.members)), ())
        for on, row in (self.rows[row] for row in rows):
            block_ways[on] += (self.members[on].ways[row],)
        return replace(self, parts=replace(self.parts, ways=block_ways))

    @cached_property
    def ways(self) -> tuple[BlockWay, ...]:
        """In the order of rows."""
        placed = ((on, self.members[on].ways[row]) for on, row in self.rows)
        return tuple(way if way.on == on else replace(way, on=on) for on, way in placed)

    @cached_property
    def summed(self) -> Ways:
        """Every way as a sum of parts: at most what it really asks for."""
        lanes = (self.joined.spread(on, rows, blocks.summed.lanes[rows]) for on, rows, blocks in self._rows_by_member)
        return replace(self.memory_use, lanes=np.vstack(list(lanes)))

    @cached_property
    def memory_use(self) -> Ways:
        """Return what every way asks of memories alone."""
        kept, coming = [], []
        for on, rows, blocks in self._rows_by_member:
            kept.append(np.zeros((len(rows), len(self.memories))))
            kept[-1][:, self._memories.kept(on)] = blocks.kept[rows]
            coming.append(np.zeros((len(rows), self.flows)))
            coming[-1][:, self._memories.coming(on)] = blocks.coming[rows]
        return Ways(np.zeros((len(self.rows), 0)), np.vstack(kept), np.vstack(coming))

    @property
    def _rows_by_member(self) -> Iterator[tuple[int, list[int], Blocks]]:
        """By accelerator the rows of its ways."""
        for on, blocks in enumerate(self.members):
            yield on, [row for number, row in self.rows if number == on], blocks

    def exact(self, row: int) -> Numbers:
        """Seconds by lane of one way, lowered itself."""
        if row not in self.settled:
            on, own = self.rows[row]
            if on and self.twins:
                first = self._places[0, own]
                self.settled[row] = self.exact(first)[self.turns[-on]]
            else:
                self.settled[row] = self.joined.spread(on, [own], self.members[on].exact(own)[None])[0]
        return self.settled[row]

    @cached_property
    def prompts(self) -> Chosen:
        """By way, the first row of those whose prompts are computed in the same way."""
        first: dict[object, int] = {}
        return np.array([first.setdefault(way.in_prompts, row) for row, way in enumerate(self.ways)], dtype=np.intp)

    @property
    def known(self) -> Chosen:
        """The rows of ways that were lowered themselves."""
        return np.array(sorted(self.settled), dtype=np.intp)

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """The lanes in order of columns."""
        return self.joined.lanes

    @cached_property
    def joined(self) -> JoinedLanes:
        """The lanes of all accelerators."""
        return JoinedLanes(self.members, self.phases)

    @cached_property
    def phase(self) -> Chosen:
        """The number of the phase of every lane."""
        return np.array([self.phases.index(phase) for phase, _ in self.lanes], dtype=np.intp)

    @property
    def memories(self) -> tuple[str, ...]:
        """The memories in order of columns: the host's first, storage last."""
        return self._memories.names

    @property
    def flows(self) -> int:
        """Kinds of what is on its way."""
        return self._memories.flows

    @property
    def buffers(self) -> Numbers:
        """Return the bytes of each memory that one byte in flight occupies (flows, memories)."""
        return self._memories.buffers

    @cached_property
    def _memories(self) -> JoinedMemories:
        return JoinedMemories(self.frame, sum(blocks.coming.shape[1] for blocks in self.members))

    @property
    def everywhere(self) -> tuple[Ends, ...]:
        """Where the ends may be."""
        return everywhere(len(self.members))

    @cached_property
    def arrangements(self) -> tuple[Ends, ...]:
        """Where the ends may be, each once where accelerators are alike."""
        return tuple(filter(first_of_alike, self.everywhere)) if self.alike else self.everywhere

    @cached_property
    def alike(self) -> bool:
        """Whether accelerators differ in nothing but names and latencies."""
        return alike(self.frame.roles)

    @cached_property
    def twins(self) -> bool:
        """Whether they differ in nothing but names."""
        return twins(self.frame.roles)

    @cached_property
    def called(self) -> tuple[Names, ...]:
        """By accelerator, what its lanes are called, where they are alike."""
        return called(self.frame.roles, self.lanes)

    @cached_property
    def turns(self) -> tuple[Chosen, ...]:
        """By turn of accelerators that are alike, for every lane the column of the one that takes its place."""
        return tuple(turned(self.called, self.lanes))

    @property
    def count(self) -> int:
        """Blocks to be composed."""
        return self.frame.model.layers

    def lopsided(self, to: int) -> Chosen:
        """The rows of ways with which something comes to one accelerator only: others need no room for that."""
        coming = self.summed.coming.max(axis=1)
        return np.flatnonzero([way.on == to or not coming[row] for row, way in enumerate(self.ways)])

    def free(self, ends: Ends) -> Numbers:
        """Bytes for blocks (memories): what is available without the ends and without buffers of devices that work."""
        used, memory = self._used(ends), self.frame.roles.hardware.memory
        free = [memory(name).available - used[name] for name in self.memories]
        return np.asarray(np.array(free, dtype=np.float64) + self._taken)

    @cached_property
    def _taken(self) -> Numbers:
        """Bytes of every memory that blocks take with every accelerator at work."""
        result = np.zeros(len(self.memories))
        for way, count in Counter(working(self.frame)).items():
            blocks = replace(self.members[way.on], ways=(replace(way, on=0),))
            result[self._memories.kept(way.on)] += count * blocks.kept[0]
        return result

    def _used(self, ends: Ends) -> Mapping[str, int]:
        """Bytes of every memory with every accelerator at work."""
        if ends not in self.parts.used:
            self.parts.used[ends] = used_bytes(self.frame, ends)
        return self.parts.used[ends]

    def ends(self, embedding: Side, output: Side) -> Numbers:
        """Seconds by lane of the ends of the model."""
        seconds_of = dict[Lane, float]()
        for phase in self.phases:
            outside = self._outside((embedding, output), phase)
            for blocks, named in zip(self.members, self.joined.named, strict=True):
                own = (lane for lane in named if lane[0] == phase)
                for lane, seconds in zip(own, of_ends(blocks.bases[phase], outside, self.count), strict=True):
                    seconds_of[lane] = max(seconds_of.get(lane, 0.0), float(seconds))
        return np.array([seconds_of[lane] for lane in self.lanes])

    def _outside(self, ends: Ends, phase: Phase) -> tuple[Task, ...]:
        """The tasks of the ends of the model."""
        if (ends, phase) not in self.parts.outside:
            self.parts.outside[ends, phase] = outside_tasks(self.frame, ends, self.members[0].iteration(phase))
        return self.parts.outside[ends, phase]

    @cached_property
    def shares(self) -> Mapping[int, Shares]:
        """By accelerator and operation, the share of its rows that it has where the host has the others."""
        return {on: blocks.shares for on, blocks in enumerate(self.members)}

    @cached_property
    def rows(self) -> tuple[tuple[int, int], ...]:
        """By way, the accelerator and its row there; what the host does alone is the first one's."""
        pairs = ((on, row) for on, blocks in enumerate(self.members) for row in range(len(blocks.ways)))
        return tuple((on, row) for on, row in pairs if not on or not self.members[on].ways[row].alone)

    @cached_property
    def _places(self) -> Mapping[tuple[int, int], int]:
        """By accelerator and its row, the way."""
        return {pair: row for row, pair in enumerate(self.rows)}
