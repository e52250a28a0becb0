"""Seconds that a block asks of every lane in one phase, for every way: sums of prices of the tasks that lowering makes.

A few blocks are lowered: on the host, on the accelerator and shared by both, with everything coming from wherever it
may; every way is a sum of their parts. Such sums leave out most of what crosses inside a block and what its parts cost
each other in memories that they share, so they are at most what the way really asks for."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from helmsman.lowering.graph import Task
from helmsman.planner.strategies.optimal.configurations.block_ways import Division, Source
from helmsman.planner.strategies.optimal.pricing.busy_lanes import BusyLane
from helmsman.planner.strategies.optimal.pricing.chains import OPS, WorkShares, chained
from helmsman.planner.strategies.optimal.pricing.lowered_parts import SIDES, TURNING, LoweredParts
from helmsman.planner.strategies.optimal.pricing.task_kinds import (
    activation,
    cache_comes,
    computed,
    goes_home,
    weights_of,
)
from helmsman.planner.strategies.optimal.program.ways import Numbers


@dataclass(frozen=True)
class Basis(LoweredParts):
    """The seconds that every way asks for in one phase, made of parts that are lowered once."""

    def of(self, shares: WorkShares) -> Numbers:
        """Seconds (ways, lanes)."""
        lanes = shares.host @ self._parts["here"] + shares.accelerator @ self._parts["there"] + self.moved(shares)
        for division in self.split:
            lanes = lanes + shares.both[division] @ self._parts[division]
        lanes[:, 0], *turning = self.chains(shares)
        for name, chain in zip(TURNING, turning, strict=True):
            lanes[:, self.places[name]] = chain
        for name, busy in self.beside.items():
            lanes[:, self.places[name]] = self.chains(shares, busy)[2] + self._counted(shares, busy)
        return lanes

    def chains(self, shares: WorkShares, beside: BusyLane | None = None, far: bool = False) -> tuple[Numbers, ...]:
        """Seconds (ways) from the first operation to the last, of which both sides do their parts at once: until all is
        on a side; then from when all is on the host until it is there again, and on the accelerator.

        What one side has made is on the other after the latency of its link. A block that begins on the other side
        begins by at most that latency sooner. `beside`: as they count beside a busy lane, `far`: of another
        accelerator, so that it slows the host only."""
        counts = self._kept(beside, far)
        here, there = (self.work(shares, side, counts) for side in SIDES)
        into, back = ((beside.idle if beside else 1.0) * latency for latency in self.latencies)
        at_host, at_accelerator = chained(self.groups, shares, (here, there), (into, back))
        enters = shares.accelerator[:, OPS.index("norm1")]
        home, away = at_host - back * enters, at_accelerator - into * (1 - enters)
        return np.minimum(at_host, at_accelerator), home, away

    def work(self, shares: WorkShares, side: str, factors: Mapping[tuple[str, str], Numbers] | None = None) -> Numbers:
        """Seconds (ways, operations) of what a side does, by side and graph so many times as long."""
        name, whole = ("here", shares.host) if side == "host" else ("there", shares.accelerator)
        parts = {name: whole, **{str(division): shares.both[division] for division in self.split}}
        scaled = {key: self._seconds[side, key] * (1.0 if factors is None else factors[side, key]) for key in parts}
        return np.asarray(sum(part * scaled[key] for key, part in parts.items()))

    def comes(self, shares: WorkShares) -> Numbers:
        """Seconds (ways, operations) of what comes for every operation."""
        result = np.zeros_like(shares.host)
        for source, comes in shares.come.items():
            result += comes * shares.accelerator * self._weights[source][:, self.carriers].max(axis=1)
        for division, tasks in self._rows.items():
            result += shares.both[division] * tasks[:, self.carriers].max(axis=1)
        result[:, OPS.index("attention")] += self._cached(shares)[:, self.carriers].max(axis=1)
        return result

    def _counted(self, shares: WorkShares, beside: BusyLane) -> Numbers:
        """Seconds (ways) of what keeps a lane busy as they count beside it."""
        counted = np.zeros(len(shares.host))
        for source, tasks in self.brought.items():
            if source in shares.come:
                counted = counted + (shares.come[source] * shares.accelerator) @ self._counted_of(tasks, beside)
        for division, tasks in self.split.items():
            counted = counted + shares.both[division] @ self._counted_of(tasks, beside)
        plain, packed = (self._counted_caches(tasks, beside) for tasks in (self.there, self.packed))
        return np.asarray(counted + shares.cached * ((1 - shares.packed) * plain + shares.packed * packed))

    def _counted_of(self, tasks: Sequence[Task], beside: BusyLane) -> Numbers:
        """By operation, of weights."""
        result = np.zeros(len(OPS))
        for task in tasks:
            op = weights_of(task)
            if op is not None:
                result[OPS.index(op)] += beside.counted(task)
        return result

    def _counted_caches(self, tasks: Sequence[Task], beside: BusyLane) -> float:
        return sum(beside.counted(task) for task in tasks if cache_comes(task))

    def moved(self, shares: WorkShares) -> Numbers:
        """Seconds (ways, lanes) of what comes and goes."""
        totals = np.zeros((len(shares.host), len(self.lanes)))
        for source, comes in shares.come.items():
            totals += (comes * shares.accelerator) @ self._weights[source]
        for division, seconds in self._rows.items():
            totals += shares.both[division] @ seconds
        return np.asarray(totals + self._cached(shares) + _either(shares.sent, shares.packed, self.sent))

    def _cached(self, shares: WorkShares) -> Numbers:
        """Seconds (ways, lanes) of past keys and values that come."""
        return _either(shares.cached, shares.packed, self._cache)

    def total(self, tasks: Sequence[Task]) -> Numbers:
        """Seconds by lane, chains left out, and activations in queues, which are others where anything streams."""
        result = np.zeros(len(self.lanes))
        for task in tasks:
            seconds = self.price(task)
            if task.resource in self.places and not activation(task):
                result[self.places[task.resource]] += seconds
            for pool, drawn in self.costs.pools.draws(task, seconds).items():
                result[self.places[f"pool {pool}"]] += drawn
        return result

    @cached_property
    def used_lanes(self) -> NDArray[np.bool_]:
        """Which lanes blocks may ask for, chains left out."""
        return self.total((*self.here, *self._coming, *self.packed)) > 0

    def _by_op(self, tasks: Sequence[Task], op_of: Callable[[Task], str | None]) -> Numbers:
        result = np.zeros((len(OPS), len(self.lanes)))
        for task in tasks:
            op = op_of(task)
            if op is not None:
                result[OPS.index(op)] += self.total([task])
        return result

    @cached_property
    def _parts(self) -> Mapping[str, Numbers]:
        """Seconds (operations, lanes) of what is computed."""
        return {name: self._by_op(tasks, computed) for name, tasks in self._graphs.items()}

    @cached_property
    def _weights(self) -> Mapping[Source, Numbers]:
        """Seconds (operations, lanes) of the weights that come to the accelerator alone, by where from."""
        return {source: self._by_op(tasks, weights_of) for source, tasks in self.brought.items()}

    @cached_property
    def _rows(self) -> Mapping[Division, Numbers]:
        """Return the seconds of rows that both share, by how they are divided."""
        return {division: self._by_op(tasks, weights_of) for division, tasks in self.split.items()}

    @cached_property
    def _seconds(self) -> Mapping[tuple[str, str], Numbers]:
        """Seconds by operation, of one batch, by side and graph."""
        seconds = {(side, name): np.zeros(len(OPS)) for side in SIDES for name in self._graphs}
        for name, tasks in self._graphs.items():
            for task in tasks:
                op = computed(task)
                if op is not None and task.batch == 0:
                    seconds[self.side(task), name][OPS.index(op)] += self.price(task)
        return seconds

    @cached_property
    def _cache(self) -> tuple[Numbers, Numbers]:
        """Seconds by lane of past keys and values that come, as they are used and in 4-bit groups."""
        plain, packed = ([task for task in tasks if cache_comes(task)] for tasks in (self.there, self.packed))
        return self.total(plain), self.total(packed)

    @cached_property
    def sent(self) -> tuple[Numbers, Numbers]:
        """Return the seconds of new keys and values that go home."""
        plain, packed = ([task for task in tasks if goes_home(task)] for tasks in (self.there, self.packed))
        return self.total(plain), self.total(packed)

    def _kept(self, beside: BusyLane | None, far: bool) -> Mapping[tuple[str, str], Numbers] | None:
        """By side and graph, how much a second of every operation counts; a `far` link slows the host only."""
        if beside is None:
            return None
        factors = self.by_side(beside.kept, 1.0)
        away = {key: beside.idle for key in factors if key[0] == "accelerator" and far}
        return {key: np.full(len(OPS), away[key]) if key in away else np.array(of) for key, of in factors.items()}


def _either(some: Numbers, packed: Numbers, seconds: tuple[Numbers, Numbers]) -> Numbers:
    """Seconds (ways, lanes) of `some` ways, as they are used or `packed`."""
    plain, groups = seconds
    return np.asarray((some * (1 - packed))[:, None] * plain + (some * packed)[:, None] * groups)
