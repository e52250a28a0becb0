"""Block tables: which blocks of a cache hold the positions of which request."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from helmsman.schemas.errors import InfeasibleError

Run = tuple[int, int, int]
"""Positions position <= p < position + count lie in rows from `row` on: (position, count, row)."""


@dataclass(slots=True)
class BlockTable:
    """The blocks of one request, in the order of its positions; `runs`: of blocks next to each other, how many come
    before, how many they are, and the first; `shared`: hashes of the first ones, which others may have, too."""

    blocks: list[int] = field(default_factory=list)
    runs: list[tuple[int, int, int]] = field(default_factory=list)
    shared: list[int] = field(default_factory=list)

    def append(self, block: int) -> None:
        """One more."""
        before, count, first = self.runs[-1] if self.runs else (0, 0, block)
        if block == first + count:
            self.runs[-1:] = [(before, count + 1, first)]
        else:
            self.runs.append((before + count, 1, block))
        self.blocks.append(block)

    def join(self) -> None:
        """Make `runs` those of `blocks`, which have been replaced."""
        blocks, self.blocks, self.runs = self.blocks, [], []
        for block in blocks:
            self.append(block)

    def clear(self) -> None:
        """None."""
        self.blocks.clear()
        self.runs.clear()
        self.shared.clear()


class BlockPool:
    """`total` blocks of `block` tokens each. Blocks that follow each other are one run, which attention reads at once
    and copies move at once, so new requests begin amid the longest run of free blocks, and go on there."""

    def __init__(self, total: int, block: int) -> None:
        self.block = block
        self._free = np.ones(total, bool)
        self.left = total

    @property
    def total(self) -> int:
        """Free or not."""
        return len(self._free)

    def extend(self, table: BlockTable, tokens: int) -> None:
        """Room for `tokens` positions in all. Raises InfeasibleError when there are not enough blocks."""
        needed = self._needed(table, tokens)
        if needed > self.left:
            remedy = "let the scheduler's limits be those of the engine"
            raise InfeasibleError(f"{needed} blocks where {self.left} are free", field="decision", remedy=remedy)
        for _ in range(needed):
            block = self._next(table, needed)
            self._free[block] = False
            self.left -= 1
            table.append(block)

    def lacks(self, table: BlockTable, tokens: int) -> bool:
        """Whether there are not enough blocks for `tokens` positions in all."""
        return self._needed(table, tokens) > self.left

    def free(self, table: BlockTable) -> None:
        """Give back a table's blocks but those that it shares; it is empty then."""
        self.give_back(table.blocks[len(table.shared) :])
        table.clear()

    def give_back(self, blocks: Sequence[int]) -> None:
        """They are free."""
        self._free[blocks] = True
        self.left += len(blocks)

    def runs(self, table: BlockTable, tokens: int) -> list[Run]:
        """Where the first `tokens` positions are."""
        size = self.block
        return [
            (before * size, min(count * size, tokens - before * size), first * size)
            for before, count, first in table.runs
            if before * size < tokens
        ]

    def check_integrity(self, tables: Sequence[BlockTable], shared: Sequence[int] = ()) -> None:
        """Raise AssertionError unless every block is free, one of those `shared` or in exactly one of `tables`."""
        used = [*shared, *(block for table in tables for block in table.blocks[len(table.shared) :])]
        assert len(used) == len(set(used)), "no block holds two things"
        for table in tables:
            assert [first + k for _, n, first in table.runs for k in range(n)] == table.blocks, "runs are of its blocks"
        assert not self._free[used].any(), "blocks in use are not free"
        assert self.left == self._free.sum() == self.total - len(used), "every block is free or in a table"

    def _needed(self, table: BlockTable, tokens: int) -> int:
        return -(-tokens // self.block) - len(table.blocks)

    def _next(self, table: BlockTable, needed: int) -> int:
        if table.blocks and table.blocks[-1] + 1 < self.total and self._free[table.blocks[-1] + 1]:
            return table.blocks[-1] + 1
        begin, end = _longest(self._free)
        return begin + (end - begin) // 2 if end - begin >= 2 * needed and begin > 0 else begin


def _longest(free: NDArray[np.bool_]) -> tuple[int, int]:
    """The longest run of free blocks: begin <= b < end."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], free, [False]]).astype(np.int8)))
    begins, ends = edges[::2], edges[1::2]
    best = int((ends - begins).argmax())
    return int(begins[best]), int(ends[best])
