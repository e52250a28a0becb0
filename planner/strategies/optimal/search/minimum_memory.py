"""The composition that needs least of one memory, beside what others have: where little else fits, and what a refusal
names."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from helmsman.planner.cost.model import CostModel
from helmsman.planner.linear_program import IntegerUnknowns, solve
from helmsman.planner.strategies.optimal.configurations.block_ways import BlockWay
from helmsman.planner.strategies.optimal.configurations.offered_ways import offered
from helmsman.planner.strategies.optimal.configurations.rules import Assignment, Ends
from helmsman.planner.strategies.optimal.pricing.all_blocks import AllBlocks, KnownParts
from helmsman.planner.strategies.optimal.program.ways import Chosen, Numbers, Ways, undominated
from helmsman.planner.strategies.streaming.place import Frame

MAX_MIP_NODES = 20
"""The number of nodes in which whole counts are sought at most."""

_MIP_GAP = 5e-5
"""The gap to their bound, as a share, at which the search for whole counts ends."""

_TIGHTER = 1e-6
"""The share by which memories are smaller for a solver that breaks rows by less."""

_MOST_TRIES = 3
"""The number of times at most that a search is repeated with less room."""

_LEVELS = 1000
"""The number of amounts of each flow that may be on their way."""

Lacks = Callable[[Assignment], Mapping[str, int]]
"""Bytes that an assignment lacks, by memory."""


@dataclass(frozen=True, eq=False)
class MinimumMemory:
    """The search for the plans that need least memory, of a question's `blocks`; `lacks` is asked whether what is found
    fits. One block ahead may be on its way.

    Only `saving` ways: weights and caches that come as they are used save no memory."""

    blocks: AllBlocks
    lacks: Lacks

    def least(self, memory: str) -> Assignment | None:
        """The composition that needs least of `memory` and lacks nothing of others; None if none is found."""
        less = np.zeros(len(self.blocks.memories))
        for _ in range(_MOST_TRIES):
            result = self._composed(memory, less)
            lacking = (
                {} if result is None else {name: size for name, size in self.lacks(result).items() if name != memory}
            )
            if not lacking:
                return result
            less = less + [lacking.get(name, 0) for name in self.blocks.memories]
        return None

    def _composed(self, memory: str, less: Numbers) -> Assignment | None:
        """Whole counts of ways beside `less` bytes that must stay free, where the ends are, and how much of every flow
        is on its way: one whole program of them all."""
        column, room = self.blocks.memories.index(memory), self._available - less
        others, scale = np.arange(len(room)) != column, np.maximum(1.0, self._available)
        demands = np.vstack([self._ways.kept, self._used, *self._buffers]) / scale
        rows = np.vstack([demands[:, others].T, self._once, self._within])
        upper = np.concatenate([(room / scale)[others] - _TIGHTER, self._times, np.zeros(len(self._within))])
        lower = np.concatenate([np.full(others.sum(), -np.inf), self._times, np.full(len(self._within), -np.inf)])
        solution = solve(
            demands[:, column], rows, lower, upper, whole=IntegerUnknowns(len(demands), MAX_MIP_NODES, _MIP_GAP)
        )
        return None if solution is None else self._assignment(solution.unknowns.round().astype(int))

    def _assignment(self, chosen: Chosen) -> Assignment:
        counts, ends = chosen[: len(self._ways)], chosen[len(self._ways) :]
        ways = [(self.blocks.ways[row], int(count)) for row, count in zip(self._names, counts, strict=True)]
        blocks = (way for way, count in sorted(ways, key=lambda way: way[0].on) for _ in range(count))
        return Assignment(tuple(blocks), *self._ends[int(ends[: len(self._ends)].argmax())], {})

    @property
    def _once(self) -> Numbers:
        """Return what adds up to whole numbers (sums, unknowns): blocks, places of the ends, levels of each flow."""
        sizes = [len(self._ways), len(self._ends), *map(len, self._levels)]
        return np.repeat(np.eye(len(sizes)), sizes, axis=1)

    @property
    def _times(self) -> Numbers:
        return np.array([self.blocks.count, *[1.0] * (1 + len(self._levels))])

    @property
    def _within(self) -> Numbers:
        """Blocks for which more comes than a level, all of them at most where a higher level is chosen (levels,
        unknowns)."""
        levels_of, start = [], len(self._ways) + len(self._ends)
        for flow, levels in zip(self._ways.coming.T, self._levels, strict=True):
            for place, level in enumerate(levels[:-1]):
                row = np.zeros(start + len(levels))
                row[: len(flow)] = flow > level
                row[start + place + 1 :] = -self.blocks.count
                levels_of.append(row)
            start += len(levels)
        return np.array([np.pad(row, (0, start - len(row))) for row in levels_of]).reshape(-1, start)

    @cached_property
    def _ends(self) -> tuple[Ends, ...]:
        return self.blocks.arrangements

    @cached_property
    def _used(self) -> Numbers:
        """Bytes that are not of blocks, by where the ends are (ends, memories)."""
        return np.array([self._available - self.blocks.free(ends) for ends in self._ends])

    @property
    def _buffers(self) -> Iterator[Numbers]:
        """By flow, bytes of buffers of each level (levels, memories)."""
        for levels, buffer in zip(self._levels, self.blocks.buffers, strict=True):
            yield np.outer(levels, buffer)

    @cached_property
    def _available(self) -> Numbers:
        hardware = self.blocks.frame.roles.hardware
        return np.array([float(hardware.memory(name).available) for name in self.blocks.memories])

    @cached_property
    def _levels(self) -> tuple[Numbers, ...]:
        """How much of each flow may be on its way: nothing, or as much as some way needs."""
        return tuple(np.unique(np.append(flow, 0.0)) for flow in self._ways.coming.T)

    @cached_property
    def _names(self) -> Chosen:
        """The rows of ways that none beats."""
        return undominated(self.blocks.memory_use)

    @cached_property
    def _ways(self) -> Ways:
        return self.blocks.memory_use.only(self._names)


def saving(frame: Frame, costs: CostModel) -> AllBlocks:
    """Ways whose operations are whole, and to which nothing comes that takes no less where it comes from."""
    ways = tuple(filter(_saves, offered(frame)))
    return AllBlocks(frame, costs, parts=KnownParts(dict.fromkeys(range(len(frame.roles.per_accelerator)), ways)))


def _saves(way: BlockWay) -> bool:
    if way.prompt != "alike" or "both" in way.parts or (way.cache_comes and "cache" not in way.q4):
        return False
    return not way.others_come or "coming" in way.q4
