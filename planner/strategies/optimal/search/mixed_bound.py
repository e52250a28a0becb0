"""A bound that no composition beats where tensors have formats of their own, and blocks are not alike any more.

The search takes all weights to be in one format. Its ways are priced again here for every kind of block that the
formats make, and the relaxation's prices of lanes and memories, found for the mean block, bound all of them by weak
duality: with E seconds of the ends, K free bytes, n_c blocks of kind c that ask for a of lanes and k of memories,

    E lanes - K memories + sum over kinds of n_c x min over ways (a lanes + k memories)

holds for whatever prices. Bytes of a block are those of its smallest format, which is no more than they are."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

import numpy as np

from helmsman.lowering.tensors import block_tensors
from helmsman.planner.strategies.optimal.configurations.one_side import sides
from helmsman.planner.strategies.optimal.configurations.rules import Ends, place
from helmsman.planner.strategies.optimal.configurations.stored_blocks import fullest
from helmsman.planner.strategies.optimal.pricing.all_blocks import AllBlocks, KnownParts
from helmsman.planner.strategies.optimal.program.compose import charged
from helmsman.planner.strategies.optimal.program.relaxation import dual, relaxation
from helmsman.planner.strategies.optimal.program.ways import Chosen, Numbers, Ways
from helmsman.planner.strategies.optimal.search.compositions import Aim, LimitedRoom, limited_room
from helmsman.planner.strategies.optimal.search.finalist import predicted
from helmsman.planner.strategies.streaming.question import Question
from helmsman.planner.tensor_formats import Formats, format_size
from helmsman.schemas.formats import StoredFormat

_MOST_LOWERINGS = 8
"""The number of times at most that the ways of a relaxation are lowered themselves."""

_USED = 1e-6
"""The number of blocks below which a way is not used."""


@dataclass(frozen=True, eq=False)
class MixedBound:
    """Seconds that no composition of `blocks`, the ways of a question of one format, beats under `aim` where tensors
    are kept in `formats`."""

    question: Question
    blocks: AllBlocks
    aim: Aim
    formats: Formats

    @cached_property
    def seconds(self) -> float:
        """Of blocks that are divided among a host and accelerators, and of one side with everything."""
        composed = (self._bound(ends) for ends in self._outside.arrangements)
        mixed = replace(self.question, frame=replace(self.question.frame, formats=self.formats))
        alone = (predicted(question, chosen, self.aim) for question, chosen in sides(mixed))
        return min(*composed, *(finalist.seconds for finalist in alone if finalist is not None), inf)

    def _bound(self, ends: Ends) -> float:
        """Return the bound with the ends of the model in one place."""
        limited, bound = self._room(ends), inf
        for _ in range(_MOST_LOWERINGS):
            kinds = [(count, self._stacked(kind, limited)) for kind, count in enumerate(self._counts)]
            relaxed = relaxation(_mean(kinds), limited.room)
            if relaxed is None:
                return inf
            parts = [
                dual(ways, replace(limited.room, blocks=count), relaxed.lanes, relaxed.prices, relaxed.counts)
                for count, ways in kinds
            ]
            outside = float(limited.room.ends @ relaxed.lanes - limited.room.free @ relaxed.prices)
            bound = outside + sum(part.bound - outside for part in parts)
            if not self._lower(np.flatnonzero(relaxed.counts > _USED)):
                break
        return bound

    def _room(self, ends: Ends) -> LimitedRoom:
        """Return what there is for blocks, on the lanes that all kinds have: those of what few formats need are left
        out."""
        limited, columns = limited_room(self._outside, ends, self.aim), self._columns[-1]
        memories = len(limited.room.free) - len(limited.limited)
        kept = np.flatnonzero(np.isin(limited.limited, columns))
        among = np.concatenate([np.arange(memories), memories + kept])
        room = replace(
            limited.room,
            ends=limited.room.ends[columns],
            phase=limited.room.phase[columns],
            free=limited.room.free[among],
            buffers=limited.room.buffers[:, among],
        )
        return LimitedRoom(room, np.flatnonzero(np.isin(columns, limited.limited)))

    @cached_property
    def _columns(self) -> list[Chosen]:
        """The lanes that all kinds have, by kind and then outside of blocks."""
        every = [*self._kinds, self._outside]
        common = [lane for lane in self._outside.lanes if all(lane in blocks.lanes for blocks in every)]
        return [np.array([blocks.lanes.index(lane) for lane in common], dtype=np.intp) for blocks in every]

    def _stacked(self, kind: int, limited: LimitedRoom) -> Ways:
        """The ways of a kind of block, with their part of what is on its way and their limited lanes as memories."""
        ways, lanes = self._kinds[kind].memory_use, self._lanes[kind]
        kept = np.hstack([ways.kept, lanes[:, limited.limited]])
        return charged(Ways(lanes, kept, ways.coming), limited.room)

    def _lower(self, ways: Chosen) -> bool:
        """Whether any of `ways` was a sum of parts until now."""
        fresh = [int(way) for way in ways if int(way) not in self._lowered]
        for way in fresh:
            self._lowered.add(way)
            for blocks, lanes, columns in zip(self._kinds, self._lanes, self._columns[:-1], strict=True):
                lanes[way] = blocks.exact(way)[columns]
        return bool(fresh)

    @cached_property
    def _lowered(self) -> set[int]:
        return set()

    @cached_property
    def _lanes(self) -> list[Numbers]:
        """By kind, seconds (ways, lanes) by what is known of them."""
        pairs = zip(self._kinds, self._columns[:-1], strict=True)
        return [blocks.summed.lanes[:, columns] for blocks, columns in pairs]

    @cached_property
    def _outside(self) -> AllBlocks:
        """Blocks of the smallest format between ends in their own, which say what there is for blocks."""
        ends = {key: fmt for key, fmt in self.formats.items() if key[1] is None}
        return self._priced(_smallest(self.formats.values()), ends)

    @cached_property
    def _kinds(self) -> list[AllBlocks]:
        """The ways for every kind of block."""
        return [
            self._priced(_smallest(formats), {(name, 0): fmt for name, fmt in zip(self._names, formats, strict=True)})
            for formats in self._block_formats
        ]

    @property
    def _counts(self) -> list[int]:
        """Blocks of each kind."""
        return list(self._block_formats.values())

    @cached_property
    def _block_formats(self) -> Counter[tuple[StoredFormat, ...]]:
        """Formats of the matrices of a block, and how many blocks have them."""
        layers = range(self.question.frame.model.layers)
        return Counter(tuple(self.formats[name, layer] for name in self._names) for layer in layers)

    @cached_property
    def _names(self) -> tuple[str, ...]:
        """The matrices of a block."""
        return tuple(
            block_tensor.name
            for block_tensor in block_tensors(self.question.frame.model, 0)
            if (block_tensor.name, 0) in self.formats
        )

    def _priced(self, weights: StoredFormat, formats: Formats) -> AllBlocks:
        """The ways with tensors in some formats, and shares of rows, prices and accelerators as they were."""
        frame = replace(self.blocks.frame, weights=weights, formats=formats)
        members = dict(enumerate(self.blocks.members))
        known = KnownParts(
            ways={on: blocks.ways for on, blocks in members.items()},
            panels={on: blocks.lowered_shares for on, blocks in members.items()},
        )
        small = replace(frame, weights=_smallest(self.formats.values()), formats={})
        costs = self.question.costs(place(small, fullest(small)))
        return AllBlocks(frame, costs, self.blocks.phases, parts=known)


def _smallest(formats: Iterable[StoredFormat]) -> StoredFormat:
    return min(formats, key=format_size)


def _mean(kinds: list[tuple[int, Ways]]) -> Ways:
    """Return what a block asks for in each way, of all kinds as often as they are."""
    weights = np.array([count for count, _ in kinds], dtype=np.float64)
    weights /= weights.sum()
    lanes, kept, coming = (
        sum(weight * column for weight, column in zip(weights, columns, strict=True))
        for columns in zip(*((ways.lanes, ways.kept, ways.coming) for _, ways in kinds), strict=True)
    )
    return Ways(np.asarray(lanes), np.asarray(kept), np.asarray(coming))
