"""The ranges [i, j) of a layer and what each costs in one configuration, as arrays over ranges."""

from dataclasses import replace
from functools import cached_property
from typing import Literal

import numpy as np

from helmsman.planner.strategies.op_split.clock import StreamedSeconds
from helmsman.planner.strategies.op_split.contention import SharedPool
from helmsman.planner.strategies.op_split.interference import BesideLinks, delayed, part
from helmsman.planner.strategies.op_split.layer_table import COLUMNS, LayerTable
from helmsman.planner.strategies.op_split.options import Mask, SearchOptions
from helmsman.planner.strategies.op_split.pipeline import (
    Indices,
    Items,
    LaneSeconds,
    Seconds,
    Section,
    apart,
    chained,
    flow_shop,
    prefix,
    printed,
)
from helmsman.planner.strategies.op_split.steady import Crossings, crossings, period
from helmsman.planner.strategies.op_split.streams import Streams
from helmsman.schemas.errors import BadInputError


def ranges(n: int, offload: bool = True) -> tuple[Indices, Indices]:
    """Starts and stops of all 0 <= i <= j <= n, by i, then j: (n+1)(n+2)/2 of them (E-PARK-06); [0, n) alone where
    the host computes nothing."""
    start, stop = np.triu_indices(n + 1) if offload else (np.array([0]), np.array([n]))
    return start.astype(np.int64), stop.astype(np.int64)


class Candidates:
    """The lanes of the ranges of a layer; `rows` below are indices into `start` and `stop`."""

    def __init__(self, table: LayerTable, options: SearchOptions) -> None:
        self.start, self.stop = ranges(len(table.units), options.offload)
        self._options, self._feasible = options, options.feasible
        self.batches = options.batches
        self._table = table
        self._ops = tuple(unit.op for unit in table.units)
        self._columns = {name: np.array(getattr(table, name)) for name in COLUMNS}
        self._check_feasible()

    def lanes(self, section: Section) -> LaneSeconds:
        """The lanes of a section, whether it fits or not.

        Lanes do not wait for each other's memories here, nor for more than one batch where nothing overlaps: L is at
        most that of `delayed`."""
        form = apart if self._options.serial else printed if self._options.printed else chained
        return form(section, self.batches)

    def fits(self, rows: Indices, compressed: bool, stored: tuple[str, ...]) -> Mask:
        """Which of the ranges are feasible."""
        start, stop = self.start[rows], self.stop[rows]
        if self._feasible is None:
            return np.ones(len(rows), dtype=np.bool_)
        if callable(self._feasible):
            return np.asarray(self._feasible(start, stop, compressed, stored), dtype=np.bool_)
        return np.asarray(self._feasible, dtype=np.bool_)[start, stop]

    def shared(
        self, rows: Indices, section: Section, lanes: LaneSeconds, compressed: bool, stored: tuple[str, ...]
    ) -> LaneSeconds:
        """`lanes` with what memories and links must work, and the expansion that storage slows: L is at most that of
        `delayed`."""
        if self._options.ideal:
            return lanes
        total = lanes.total
        for pool in self._options.pools:
            total = np.maximum(total, self._pool(pool, rows, compressed, stored))
        if compressed and stored and self.batches == 1 and "storage" in self._slower:
            worst = self._slower["storage"]._unpacking_work(rows, compressed, stored)
            plain = self._unpacking_work(rows, compressed, stored)
            total = np.maximum(total, plain + part(section.storage, worst) * (worst - plain))
        return replace(lanes, total=total)

    def delayed(
        self, rows: Indices, section: Section, lanes: LaneSeconds, compressed: bool, stored: tuple[str, ...]
    ) -> LaneSeconds:
        """`shared` lanes with the rest that delays them: busy links where anything overlaps, and turns of batches where
        nothing does. That costs more to find out, so it is for candidates that those do not rule out."""
        options, total = self._options, lanes.total
        if options.ideal:
            return lanes
        if options.serial and options.flow is not None:
            start, stop = self.start[rows], self.stop[rows]
            streams = self.streams(rows, compressed, stored)
            total = np.maximum(total, period(options.flow, streams, start, stop, self.batches, None))
        elif self._slower:
            lanes = chained(self._beside(rows, section, compressed, stored), self.batches)
            total = np.maximum(total, lanes.total)
        return replace(lanes, total=total)

    def bound(self, rows: Indices, section: Section, compressed: bool, stored: tuple[str, ...]) -> Seconds:
        """Seconds that no schedule of the ranges beats."""
        return self.shared(rows, section, apart(section, self.batches), compressed, stored).total

    def slowing(self, rows: Indices, section: Section, compressed: bool, stored: tuple[str, ...]) -> Seconds:
        """Seconds that busy links add, by the closed form."""
        if not self._slower:
            return np.zeros(len(rows))
        beside = chained(self._beside(rows, section, compressed, stored), self.batches)
        return np.maximum(0.0, beside.total - chained(section, self.batches).total)

    def streams(self, rows: Indices, compressed: bool, stored: tuple[str, ...]) -> dict[str, StreamedSeconds | None]:
        """Return what is streamed for every step of a layer."""
        assert self._options.flow is not None
        streams = Streams(self._columns, self._ops, compressed, stored)
        return streams.of(self._options.flow.steps, self.start[rows], self.stop[rows])

    def _beside(self, rows: Indices, plain: Section, compressed: bool, stored: tuple[str, ...]) -> Section:
        """The section beside links that are as busy as they are."""
        busy = {"link": plain.weights + self.batches * plain.caches, "storage": plain.storage}
        beside = []
        for links, worst in self._slower.items():
            if busy[links].any():
                section = worst.section(rows, compressed, stored, plain.storage)
                beside.append(BesideLinks(section, busy[links], worst._unpacking_work(rows, compressed, stored)))
        return delayed(plain, beside, self.batches)

    @cached_property
    def _slower(self) -> "dict[Literal['link', 'storage'], Candidates]":
        """Return the same ranges beside links of a kind that never rest, lanes alone; where those delay anything."""
        delays = self._options.delays
        if delays is None or self._options.serial:
            return {}
        alone = replace(self._options, flow=None, pools=(), delays=None, feasible=None)
        tables: dict[Literal["link", "storage"], LayerTable] = {"link": delays.link, "storage": delays.storage}
        return {links: Candidates(table, alone) for links, table in tables.items() if table != self._table}

    def _unpacking_work(self, rows: Indices, compressed: bool, stored: tuple[str, ...]) -> Seconds:
        """Seconds of the unpacking lane, of all batches."""
        if not compressed:
            return np.zeros(len(rows))
        linked = self._linked(stored)
        work = _within(self._columns["decompress_weights"] * linked, self.start[rows], self.stop[rows])
        return np.asarray(work + self.batches * self._caches_work[rows])

    def _linked(self, stored: tuple[str, ...]) -> Mask:
        """The units whose weights do not come from storage."""
        if stored not in self._units_linked:
            self._units_linked[stored] = np.array([op not in stored for op in self._ops])
        return self._units_linked[stored]

    @cached_property
    def _units_linked(self) -> dict[tuple[str, ...], Mask]:
        return {}

    def _pool(self, pool: SharedPool, rows: Indices, compressed: bool, stored: tuple[str, ...]) -> Seconds:
        """Seconds that a memory or link works for a layer."""
        linked = self._linked(stored)
        columns, start, stop = pool.columns, self.start[rows], self.stop[rows]
        streamed = columns["weights_q"] + columns["decompress_weights"] if compressed else columns["weights"]
        weights = np.where(linked, streamed, columns["storage"] + columns["staged"])
        return np.asarray(self._pool_batches(pool, compressed)[rows] + _within(weights, start, stop))

    def _pool_batches(self, pool: SharedPool, compressed: bool) -> Seconds:
        """The part of all batches: what is computed, caches, activations."""
        key = pool.name, compressed
        if key not in self._pooled:
            columns = pool.columns
            caches = columns["cache_q"] + columns["decompress_cache"] if compressed else columns["cache"]
            one = _outside(columns["host"], self.start, self.stop)
            one = one + _within(columns["accelerator"] + caches, self.start, self.stop)
            if self._crossings is not None:
                crossed = self._crossings
                one = one + pool.into * crossed.bytes_into + pool.back * crossed.bytes_back
            self._pooled[key] = self.batches * one
        return self._pooled[key]

    @cached_property
    def _pooled(self) -> dict[tuple[str, bool], Seconds]:
        return {}

    @cached_property
    def _crossings(self) -> Crossings | None:
        """Return what the boundaries of the ranges cost, where that is known and counts."""
        flow = self._options.flow
        return None if flow is None or self._options.ideal else crossings(flow, self.start, self.stop)

    @cached_property
    def _chain(self) -> Seconds:
        """One batch's chain of operations, and of what crosses between them."""
        return self._host + self._accelerator if self._crossings is None else self._crossings.chain

    @cached_property
    def _crossing(self) -> Seconds:
        """The busier lane of activations, one batch."""
        if self._crossings is None:
            return np.zeros(len(self.start))
        return np.maximum(self._crossings.into, self._crossings.back)

    def storage(self, op: str) -> Seconds:
        """Seconds to read the weights of `op` that every range has."""
        here = np.array([unit == op for unit in self._ops])
        return _within(self._columns["storage"] * here, self.start, self.stop)

    def section(self, rows: Indices, compressed: bool, stored: tuple[str, ...], storage: Seconds) -> Section:
        """Return what `rows` move and compute with the weights of `stored` from storage in `storage` seconds."""
        start, stop, suffix = self.start[rows], self.stop[rows], "_q" if compressed else ""
        linked = self._linked(stored)
        weights = np.where(linked, self._columns[f"weights{suffix}"], self._columns["staged"])
        none = np.zeros(len(rows))
        section = Section(
            host=self._host[rows],
            accelerator=self._accelerator[rows],
            chain=self._chain[rows],
            crossing=self._crossing[rows],
            weights=_within(weights, start, stop),
            caches=self._caches[compressed][rows],
            ready=none,
            weights_ready=none,
            caches_ready=none,
            weights_work=none,
            caches_work=none,
            storage=storage,
            caches_move=self._caches_move[compressed][rows],
        )
        return self._unpacking(section, weights, linked, rows) if compressed else section

    def _unpacking(self, section: Section, weights: Seconds, linked: Mask, rows: Indices) -> Section:
        """The section with the flow shops that its closed form needs."""
        start, stop = self.start[rows], self.stop[rows]
        work, none = self._columns["decompress_weights"] * linked, np.zeros(len(self._ops))
        caches, caches_work = self._columns["cache_q"], self._columns["decompress_cache"]
        if self._options.serial:
            return replace(section, weights_work=_within(work, start, stop), caches_work=self._caches_work[rows])
        if self.batches == 1 or self._options.printed:
            ready = flow_shop(Items(weights, caches, work, caches_work), start, stop)
            return replace(section, ready=ready, caches_ready=self._caches_ready[rows])
        return replace(
            section,
            weights_ready=flow_shop(Items(weights, none, work, none), start, stop),
            weights_work=_within(work, start, stop),
            caches_ready=self._caches_ready[rows],
            caches_work=self._caches_work[rows],
        )

    @cached_property
    def _host(self) -> Seconds:
        return _outside(self._columns["host"], self.start, self.stop)

    @cached_property
    def _accelerator(self) -> Seconds:
        return _within(self._columns["accelerator"], self.start, self.stop)

    @cached_property
    def _caches(self) -> dict[bool, Seconds]:
        return {q: _within(self._columns[_cache(q)], self.start, self.stop) for q in (False, True)}

    @cached_property
    def _caches_move(self) -> dict[bool, Mask]:
        """Whether a range has a unit with a cache; counted, because differences of sums are not exactly 0."""
        moving = {
            q: (self._columns[_cache(q)] > 0) | (q & (self._columns["decompress_cache"] > 0)) for q in (False, True)
        }
        return {q: _within(some.astype(np.float64), self.start, self.stop) > 0 for q, some in moving.items()}

    @cached_property
    def _caches_ready(self) -> Seconds:
        none = np.zeros(len(self._ops))
        items = Items(none, self._columns["cache_q"], none, self._columns["decompress_cache"])
        return flow_shop(items, self.start, self.stop)

    @cached_property
    def _caches_work(self) -> Seconds:
        return _within(self._columns["decompress_cache"], self.start, self.stop)

    def _check_feasible(self) -> None:
        if self._feasible is None or callable(self._feasible):
            return
        need = (len(self._ops) + 1,) * 2
        if np.shape(self._feasible) != need:
            raise BadInputError(f"needs the shape {need} over (i, j)", field="feasible", value=np.shape(self._feasible))


def _cache(compressed: bool) -> str:
    return "cache_q" if compressed else "cache"


def _within(values: Seconds, start: Indices, stop: Indices) -> Seconds:
    sums = prefix(values)
    return sums[stop] - sums[start]


def _outside(values: Seconds, start: Indices, stop: Indices) -> Seconds:
    """Summed from both ends so that an empty rest is exactly 0."""
    return np.asarray(prefix(values)[start] + prefix(values[::-1])[len(values) - stop])
