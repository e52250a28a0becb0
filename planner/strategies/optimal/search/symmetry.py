"""Accelerators that differ in nothing but names: what is asked of all is found with the ways of one.

Turning round which of them does what changes nothing, so the mean of all turns of a composition asks for the mean of
what they ask for: a bound on compositions of one accelerator with the memory of all, whose own lanes count by their
share, is one for all of them (`together`). And what each of them does with its part of the blocks, of the host and of
what they share is a plan where all do the same (`each`)."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from helmsman.planner.strategies.optimal.configurations.block_ways import BlockWay
from helmsman.planner.strategies.optimal.configurations.rules import Ends, Side
from helmsman.planner.strategies.optimal.pricing.all_blocks import AllBlocks
from helmsman.planner.strategies.optimal.program.ways import Chosen, Numbers, Ways
from helmsman.scheduler.iteration import Phase


@dataclass(frozen=True)
class SymmetricWays:
    """The ways of the first of `all` accelerators: for all blocks `together`, or for the part of `each`."""

    all: AllBlocks
    part: Literal["together", "each"]

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases that matter."""
        return self.all.phases

    @property
    def count(self) -> int:
        """Blocks to be composed; the last accelerator of `each` may have fewer."""
        return self.all.count if self.part == "together" else -(-self.all.count // self._times)

    @property
    def arrangements(self) -> tuple[Ends, ...]:
        """Where the ends may be."""
        return self.all.arrangements

    @property
    def memories(self) -> tuple[str, ...]:
        """The host's and the first accelerator's, which stands for all."""
        return self.all.memories[:2]

    @property
    def buffers(self) -> Numbers:
        """Return the bytes of each memory that a byte in flight occupies (flows, memories): together at least once."""
        return self.all.buffers[: self._flows, : len(self.memories)]

    @cached_property
    def summed(self) -> Ways:
        """Every way as a sum of parts."""
        whole = self.all.summed.only(self.rows)
        kept = whole.kept[:, : len(self.memories)] * ((1.0, 1.0) if self.part == "together" else (self._times, 1.0))
        return Ways(self._folded(whole.lanes), kept, whole.coming[:, : self._flows])

    def exact(self, row: int) -> Numbers:
        """Seconds by lane of one way, lowered itself."""
        return np.asarray(self._folded(self.all.exact(int(self.rows[row]))[None])[0])

    @property
    def prompts(self) -> Chosen:
        """By way, a number that is equal for those whose prompts are computed in the same way."""
        return self.all.prompts[self.rows]

    @property
    def known(self) -> Chosen:
        """The rows of ways that were lowered themselves."""
        return np.flatnonzero(np.isin(self.rows, self.all.known))

    @cached_property
    def phase(self) -> Chosen:
        """The number of the phase of every lane."""
        return self.all.phase[self._own]

    def ends(self, embedding: Side, output: Side) -> Numbers:
        """Seconds by lane of the ends of the model."""
        seconds = self._folded(self.all.ends(embedding, output)[None])[0]
        return np.asarray(seconds if self.part == "together" else seconds / self._times)

    def free(self, ends: Ends) -> Numbers:
        """Bytes for blocks (memories)."""
        host, *others = self.all.free(ends)
        return np.array([host, sum(others) if self.part == "together" else min(others)])

    def spread(self, counts: Mapping[int, int]) -> dict[int, int]:
        """Counts of ways of `each` as those of ways of all accelerators: the same on every one, but for blocks that
        there are not, which the last ones lack."""
        result: dict[int, int] = {}
        for on in range(self._times):
            for row, count in counts.items():
                place = self.places[int(self.rows[row]), on]
                result[place] = result.get(place, 0) + count
        for _ in range(self._times * self.count - self.all.count):
            longest = max(result, key=lambda row: (self.all.summed.lanes[row].max(), row))
            result[longest] -= 1
            result = {row: count for row, count in result.items() if count}
        return result

    @cached_property
    def rows(self) -> Chosen:
        """The rows of the first accelerator's ways, and of what the host does alone."""
        return np.flatnonzero([way.on == 0 for way in self.all.ways])

    @property
    def _times(self) -> int:
        return len(self.all.members)

    @property
    def _flows(self) -> int:
        return self.all.flows // self._times

    @cached_property
    def places(self) -> Mapping[tuple[int, int], int]:
        """By row of the first accelerator's ways and number of another one, the row of that one's way."""
        first: dict[BlockWay, int] = {}
        result: dict[tuple[int, int], int] = {}
        for row, way in enumerate(self.all.ways):
            key = replace(way, on=0)
            first.setdefault(key, row)
            result[first[key], way.on] = row
        for row in self.rows:
            for on in range(self._times):
                result.setdefault((int(row), on), int(row))
        return result

    def _folded(self, lanes: Numbers) -> Numbers:
        """Seconds (ways, lanes): the mean of all turns, or what all of them together ask for."""
        turned = sum(lanes[:, turn] for turn in self.all.turns)
        return np.asarray(turned)[:, self._own] / (self._times if self.part == "together" else 1)

    @cached_property
    def _own(self) -> Chosen:
        """The columns of lanes that are not another accelerator's."""
        first, *rest = self.all.called
        others = {name for names in rest for name in names.values()} - set(first.values())
        return np.flatnonzero([name not in others for _, name in self.all.lanes])
