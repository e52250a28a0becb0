"""Blocks of prompts that several requests have: computed once, and kept for those who begin alike.

Who begins with what, and what is given up, is the scheduler's to say (csrc/scheduling/prefix.h); which blocks these
are is kept here. They are full, so nobody writes to them any more."""

from collections import Counter
from collections.abc import Iterable, Sequence

from helmsman.executor.serving.blocks import BlockPool, BlockTable


class Prefixes:
    """Blocks of `pool` by the hash of all tokens up to their end. `idle`: how many of them nobody holds."""

    def __init__(self, pool: BlockPool) -> None:
        self._pool = pool
        self._blocks: dict[int, int] = {}
        self._holders: Counter[int] = Counter()
        self.idle = 0

    def reuse(self, table: BlockTable, hashes: Sequence[int]) -> None:
        """An empty table begins with blocks that are here."""
        for block_hash in hashes:
            table.append(self._blocks[block_hash])
            self._hold(table, block_hash)

    def keep(self, table: BlockTable, hashes: Sequence[int]) -> None:
        """A table's first blocks have been computed, and are shared from now on. One that is here already takes the
        place of the table's own."""
        before = list(table.blocks)
        for block_hash in hashes[len(table.shared) :]:
            own = table.blocks[len(table.shared)]
            if block_hash not in self._blocks:
                self._blocks[block_hash] = own
                self.idle += 1
            elif self._blocks[block_hash] != own:
                table.blocks[len(table.shared)] = self._blocks[block_hash]
                self._pool.give_back([own])
            self._hold(table, block_hash)
        if table.blocks != before:
            table.join()

    def release(self, table: BlockTable) -> None:
        """A table holds its shared blocks no longer; its own are the pool's to free."""
        for block_hash in table.shared:
            self._holders[block_hash] -= 1
            self.idle += self._holders[block_hash] == 0

    def evict(self, hashes: Iterable[int]) -> None:
        """Blocks that nobody holds are free."""
        for block_hash in hashes:
            assert not self._holders.pop(block_hash, 0), "a block that is held stays"
            self._pool.give_back([self._blocks.pop(block_hash)])
            self.idle -= 1

    def clear(self) -> None:
        """Evict all, once nobody holds any."""
        self.evict(list(self._blocks))

    def check_integrity(self, tables: Sequence[BlockTable]) -> list[int]:
        """All blocks here. Raise AssertionError unless they are in as many of `tables` as hold them, at the front."""
        holders = Counter(block_hash for table in tables for block_hash in table.shared)
        assert holders == +self._holders, "who holds a block has it in its table"
        assert self.idle == len(self._blocks) - len(holders), "nobody holds the others"
        for table in tables:
            here = [self._blocks[block_hash] for block_hash in table.shared]
            assert here == table.blocks[: len(here)], "shared blocks come first"
        return list(self._blocks.values())

    def _hold(self, table: BlockTable, block_hash: int) -> None:
        self.idle -= self._holders[block_hash] == 0
        self._holders[block_hash] += 1
        table.shared.append(block_hash)
