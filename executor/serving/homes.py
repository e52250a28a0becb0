"""The two homes of keys and values, the accelerator's cache and the host's: who has which blocks, and what moves."""

from collections import Counter
from collections.abc import Iterable, Sequence

from helmsman.executor.devices.iterations import Cohort
from helmsman.executor.serving.active_request import ActiveRequest
from helmsman.executor.serving.blocks import BlockPool, BlockTable, Run
from helmsman.executor.serving.cache import BlockCache, Pieces, pieces
from helmsman.executor.serving.host_cohorts import HostCohorts
from helmsman.executor.serving.prefixes import Prefixes
from helmsman.executor.serving.seating import Seating
from helmsman.scheduler.decision import Home
from helmsman.schemas.errors import InfeasibleError


class Homes:
    """Blocks of `block` tokens in either cache. Those of requests that cohorts work on are given back late.
    `prefixes`: blocks of the accelerator's cache that requests share; `states`: rows of what mixers keep of requests
    and of prompts, None where they keep nothing."""

    def __init__(self, seating: Seating, block: int, deferred: HostCohorts | None) -> None:
        self.caches: dict[Home, BlockCache] = {"gpu": seating.gpu}
        if seating.cpu is not None:
            self.caches["cpu"] = seating.cpu
        self.pools = {home: BlockPool(cache.rows // block, block) for home, cache in self.caches.items()}
        self.prefixes = Prefixes(self.pools["gpu"])
        self.states = None if seating.states is None else seating.states.slots()
        self._passing = seating.passing
        self._passed = 0
        self._deferred = deferred
        self._held: list[tuple[Home, BlockTable, Cohort]] = []

    def begin(self) -> None:
        """A pass is made up: what nobody works on any more is free, and so is what caches pass through."""
        self._passed = 0
        if self.states is not None:
            self.states.begin()
        self._give_back()

    @property
    def occupancy(self) -> dict[str, tuple[int, int]]:
        """By home, blocks in use and blocks there are; what is only kept for others to begin with counts as free, and
        so does what is given back late."""
        late = Counter[str]()
        for home, table, _ in self._held:
            late[home] += len(table.blocks)
        late["gpu"] += self.prefixes.idle
        return {home: (pool.total - pool.left - late[home], pool.total) for home, pool in self.pools.items()}

    def reuse(self, running: ActiveRequest, tokens: int) -> None:
        """It begins with so many tokens that others have computed."""
        known = running.hashes[: tokens // self.pools["gpu"].block]
        self.prefixes.reuse(running.table, known)
        running.cached = tokens
        if self.states is not None and known:
            self.states.restore(running, known[-1])

    def evict(self, hashes: Sequence[int]) -> None:
        """Blocks of prompts that nobody holds are free, and so are snapshots behind them."""
        self.prefixes.evict(hashes)
        if self.states is not None:
            self.states.forget(hashes)

    def keep_state(self, running: ActiveRequest, tokens: int) -> None:
        """Its state becomes a snapshot once so many tokens of its prompt are cached."""
        assert self.states is not None, "states"
        self.states.keep(running, running.hashes[tokens // self.pools["gpu"].block - 1])

    def forget_prefixes(self) -> None:
        """Nobody shares anything any more."""
        self.prefixes.clear()
        if self.states is not None:
            self.states.clear()

    def keep(self, running: ActiveRequest) -> None:
        """Share with others what is cached of its prompt, if it is on the accelerator."""
        if running.home == "gpu":
            self.prefixes.keep(running.table, running.hashes[: running.cached // self.pools["gpu"].block])

    def place(self, running: ActiveRequest, tokens: int = 1) -> list[Run]:
        """Room for its next positions, and where they and all before them are."""
        total = running.cached + tokens
        self._extend(running.home, running.table, total)
        return self.pools[running.home].runs(running.table, total)

    def slot(self, running: ActiveRequest) -> int:
        """Return where the states of a request are; 0 where nothing keeps any."""
        return 0 if self.states is None else self.states.of(running)

    def free(self, running: ActiveRequest) -> None:
        """Nothing of it is cached any more."""
        if self.states is not None:
            self.states.drop(running)
        working = None if self._deferred is None else self._deferred.at_work(running)
        if self._deferred is not None:
            self._deferred.drop(running)
        if working is not None:
            self._held.append((running.home, running.table, working))
            running.table = BlockTable()
        else:
            self.prefixes.release(running.table)
            self.pools[running.home].free(running.table)
        running.cached = 0

    def restart(self, running: ActiveRequest) -> None:
        """Its token under way in a cohort, if there is one, is begun anew."""
        if self._deferred is not None:
            self._deferred.drop(running)

    def move(self, running: ActiveRequest, home: Home) -> Pieces:
        """To the other home; what is to be copied before its blocks here are used by others."""
        before, cached = running.home, running.cached
        runs, table = self.pools[before].runs(running.table, cached), BlockTable()
        self._extend(home, table, cached)
        result = pieces(self.caches[before], runs, self.caches[home], self.pools[home].runs(table, cached))
        slot = None if self.states is None else self.states.move(running, home)
        self.free(running)
        running.home, running.table, running.cached, running.slot = home, table, cached, slot
        return result

    def through(self, running: ActiveRequest, tokens: int) -> tuple[list[Run], Pieces, Pieces]:
        """A part of a prompt whose home is the host: where it passes through the accelerator, together with what is
        cached, which comes there, and what of it leaves."""
        assert self._passing is not None, "a host"
        first, total = self._passed, running.cached + tokens
        if first + total > self._passing.rows:
            remedy = "leave prompts whose home is the host to more passes"
            raise InfeasibleError("too many tokens pass through the accelerator", field="decision", remedy=remedy)
        self._passed += total
        run = (0, total, first)
        home, there = self.place(running, tokens), self.caches["cpu"]
        fetch = pieces(there, list(_clip(home, 0, running.cached)), self._passing, [run])
        store = pieces(self._passing, [run], there, list(_clip(home, running.cached, total)))
        return [(0, total, self.caches["gpu"].rows + first)], fetch, store

    def _extend(self, home: Home, table: BlockTable, tokens: int) -> None:
        """Room for `tokens` positions. Blocks that are only held count as free: they are waited for."""
        pool = self.pools[home]
        if self._held and self._deferred is not None and pool.lacks(table, tokens):
            self._deferred.wait()
            self._give_back()
        pool.extend(table, tokens)

    def _give_back(self) -> None:
        """Blocks of which cohorts have landed."""
        for home, table, cohort in self._held:
            if cohort.landed:
                self.pools[home].free(table)
        self._held = [entry for entry in self._held if entry[1].blocks]

    def check_integrity(self, all_running: Iterable[ActiveRequest]) -> None:
        """Raise AssertionError unless blocks and what is cached agree."""
        all_running = list(all_running)
        if self.states is not None:
            self.states.check_integrity(all_running)
        block_tables: dict[Home, list[BlockTable]] = {home: [] for home in self.pools}
        for home, table, _ in self._held:
            block_tables[home].append(table)
        for running in all_running:
            block_tables[running.home].append(running.table)
            room = len(running.table.blocks) * self.pools[running.home].block
            assert running.cached <= room, "what is cached has a place"
            assert running.cached < len(running.tokens) + 1, "only tokens are cached"
            assert running.home == "gpu" or not running.table.shared, "the host's cache is shared by nobody"
        shared = self.prefixes.check_integrity(block_tables["gpu"])
        for home, pool in self.pools.items():
            pool.check_integrity(block_tables[home], shared if home == "gpu" else ())


def _clip(runs: list[Run], start: int, stop: int) -> Iterable[Run]:
    """Return the part of `runs` in positions start <= p < stop."""
    for position, count, row in runs:
        begin, end = max(position, start), min(position + count, stop)
        if begin < end:
            yield begin, end - begin, row + begin - position
