"""The ranges [i, j) of a layer and what each costs in one configuration, as arrays over ranges."""

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from helmsman.planner.strategies.op_split.layer_table import COLUMNS, LayerTable
from helmsman.planner.strategies.op_split.pipeline import (
    Indices,
    Items,
    Lanes,
    Seconds,
    Section,
    chained,
    flow_shop,
    prefix,
    printed,
    serial,
)
from helmsman.schemas.errors import BadInputError

Mask = NDArray[np.bool_]
Feasible = Callable[[Indices, Indices, bool, tuple[str, ...]], Mask] | Mask
Kinds = Literal["all", "prefix", "suffix", "gpu-only", "host-only"]


def ranges(n: int, kinds: Kinds) -> tuple[Indices, Indices]:
    """Starts and stops of all 0 <= i <= j <= n of these kinds, by i, then j: (n+1)(n+2)/2 of them (E-PARK-06).

    `prefix`: the host has [0, i), one split point; `suffix`: the host has [j, n).
    """
    start, stop = np.triu_indices(n + 1)
    keep = {
        "all": start <= stop,
        "prefix": stop == n,
        "suffix": start == 0,
        "gpu-only": (start == 0) & (stop == n),
        "host-only": (start == 0) & (stop == 0),
    }[kinds]
    return start[keep].astype(np.int64), stop[keep].astype(np.int64)


class Candidates:
    """The lanes of ranges [start, stop) of a layer; `rows` below are indices into those two."""

    def __init__(
        self,
        table: LayerTable,
        start: Indices,
        stop: Indices,
        batches: int,
        printed: bool,
        feasible: Feasible | None,
        serial: bool = False,
    ) -> None:
        self.start, self.stop = start, stop
        self._batches, self._printed, self._serial, self._feasible = batches, printed, serial, feasible
        self._ops = tuple(unit.op for unit in table.units)
        self._columns = {name: np.array(getattr(table, name)) for name in COLUMNS}
        self._check_feasible()

    def lanes(self, rows: Indices, compressed: bool, stored: tuple[str, ...], storage: Seconds) -> Lanes:
        """The lanes with the weights of `stored` from storage in `storage` seconds; L is infinite where infeasible."""
        section = self._section(rows, compressed, stored, storage)
        form = serial if self._serial else printed if self._printed else chained
        lanes = form(section, self._batches)
        if self._feasible is not None:
            lanes.total[~self._fits(rows, compressed, stored)] = np.inf
        return lanes

    def storage(self, op: str) -> Seconds:
        """Seconds to read the weights of `op` that every range has."""
        here = np.array([unit == op for unit in self._ops])
        return _within(self._columns["storage"] * here, self.start, self.stop)

    def _section(self, rows: Indices, compressed: bool, stored: tuple[str, ...], storage: Seconds) -> Section:
        start, stop, suffix = self.start[rows], self.stop[rows], "_q" if compressed else ""
        linked = np.array([op not in stored for op in self._ops])
        weights = np.where(linked, self._columns[f"weights{suffix}"], self._columns["staged"])
        none = np.zeros(len(rows))
        section = Section(
            host=self._host[rows],
            accelerator=self._accelerator[rows],
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
        if self._serial:
            return replace(section, weights_work=_within(work, start, stop), caches_work=self._caches_work[rows])
        if self._batches == 1 or self._printed:
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
        """What is outside of the ranges, summed from both ends so that an empty rest is exactly 0."""
        column = self._columns["host"]
        return prefix(column)[self.start] + prefix(column[::-1])[len(column) - self.stop]

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

    def _fits(self, rows: Indices, compressed: bool, stored: tuple[str, ...]) -> Mask:
        start, stop = self.start[rows], self.stop[rows]
        if callable(self._feasible):
            return np.asarray(self._feasible(start, stop, compressed, stored), dtype=np.bool_)
        return np.asarray(self._feasible, dtype=np.bool_)[start, stop]

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
