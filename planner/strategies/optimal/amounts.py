"""What a block asks of every lane in one phase, for every way: sums of prices of the tasks that lowering makes.

A few blocks are lowered: on the host, on the accelerator and shared by both, with everything coming from wherever it
may; every way is a sum of their parts. Such sums leave out most of what crosses inside a block and what its parts cost
each other in memories that they share, so they are at most what the way really asks for; `exact` lowers the way
itself."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from helmsman.lowering.graph import Task, TaskGraph
from helmsman.lowering.pools import Pools
from helmsman.planner.costs import CostModel
from helmsman.planner.predict import scheduled
from helmsman.planner.strategies.optimal.block_ways import Division, Source
from helmsman.planner.strategies.optimal.critical_path import Crossed
from helmsman.planner.strategies.optimal.interplay import Interplay
from helmsman.planner.strategies.optimal.ways import Numbers
from helmsman.planner.strategies.streaming.shared_rows import delays
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.hardware import Device

Bools = NDArray[np.bool_]

FoundT = TypeVar("FoundT")

CHAIN = "chain"
"""The lane in which operations of one batch follow each other."""

GROUPS = (("norm1",), ("q", "k", "v"), ("append",), ("attention",), ("o",), ("norm2",), ("gate",), ("up",), ("down",))
"""Operations of a block in order; those of a group do not wait for each other."""

OPS = tuple(op for group in GROUPS for op in group)

_OUTPUT = ("final_norm", "head")

TURNING = ("chain back to the host", "chain back to the accelerator")
"""The chain with what brings the hidden state back to the side where the next block is entered."""

_SIDES = ("host", "accelerator")

_TINY = 1e-300

_MOVING = ("transfer", "decompress", "pin")
_MOST_LOSSES = 3
"""So many different losses beside a busy link are told apart."""


@dataclass(frozen=True, eq=False)
class Shares:
    """Who does an operation in every way (ways, operations), 0 or 1: the `host`, the `accelerator`, or, by division,
    `both`; `come`: whether weights come of which the accelerator has all, by where from.

    `cached`, `sent` (ways): whether past keys and values come, and new ones go home; `packed`: in 4-bit groups."""

    host: Numbers
    both: Mapping[Division, Numbers]
    accelerator: Numbers
    come: Mapping[Source, Numbers]
    cached: Numbers
    sent: Numbers
    packed: Numbers

    @property
    def shared(self) -> Numbers:
        """Which operations both do."""
        return np.asarray(sum(self.both.values(), np.zeros_like(self.host)))


@dataclass(frozen=True, eq=False)
class Beside:
    """A chain beside a busy `lane`, of which a second counts for a `share` of one; `interplay`: of operations and what
    keeps it busy; `far`: of another accelerator, so that it slows the host only."""

    lane: str
    share: float
    interplay: Interplay
    far: bool = False


@dataclass(frozen=True)
class Basis:
    """The tasks of a block in one phase: `here` on the `host`, `there` on the accelerator, to which all comes; where
    that is possible, `split` between both in every division; `others`: on the accelerator, with weights that come from
    elsewhere than host memory, or in 4-bit groups; `packed`: on the accelerator, with such a cache."""

    costs: CostModel
    iteration: Iteration
    host: Device
    here: tuple[Task, ...]
    there: tuple[Task, ...]
    split: Mapping[Division, tuple[Task, ...]]
    others: Mapping[Source, tuple[Task, ...]] = field(default_factory=dict)
    packed: tuple[Task, ...] = ()

    @cached_property
    def brought(self) -> Mapping[Source, tuple[Task, ...]]:
        """The tasks of a block on the accelerator, by where weights come from."""
        return {"host": self.there, **self.others}

    @cached_property
    def lanes(self) -> tuple[str, ...]:
        """What is counted, in order: the chain, queues, memories and links that several share, and the chain beside a
        busy link."""
        queues = dict.fromkeys(task.resource for task in (*self.here, *self._coming, *self.packed))
        pools = (f"pool {name}" for name in self._pools.capacity)
        return (CHAIN, *queues, *pools, *TURNING, *self.beside)

    def of(self, shares: Shares) -> Numbers:
        """Seconds (ways, lanes)."""
        lanes = shares.host @ self._parts["here"] + shares.accelerator @ self._parts["there"] + self._moved(shares)
        for division in self.split:
            lanes = lanes + shares.both[division] @ self._parts[division]
        lanes[:, 0], *turning = self.chains(shares)
        for name, chain in zip(TURNING, turning, strict=True):
            lanes[:, self._places[name]] = chain
        for name, each in self.beside.items():
            lanes[:, self._places[name]] = self.chains(shares, each)[2] + each.share * self._counted(shares, each)
        return lanes

    def chains(self, shares: Shares, beside: Beside | None = None) -> tuple[Numbers, ...]:
        """Seconds (ways) from the first operation to the last, of which both sides do their parts at once: until all is
        on a side; then from when all is on the host until it is there again, and on the accelerator.

        What one side has made is on the other after the latency of its link. A block that begins on the other side
        begins by at most that latency sooner. `beside`: as they count beside a busy lane."""
        counts = self._kept(beside)
        here, there = (self._work(shares, side, counts) for side in _SIDES)
        into, back = ((1 - (beside.share if beside else 0.0)) * latency for latency in self._latencies)
        at_host, at_accelerator = _chained(self._groups, shares, (here, there), (into, back))
        enters = shares.accelerator[:, OPS.index("norm1")]
        home, away = at_host - back * enters, at_accelerator - into * (1 - enters)
        return np.minimum(at_host, at_accelerator), home, away

    def slowed(self, shares: Shares) -> Numbers:
        """Seconds (ways) of the chain while the link never rests, and 4-bit groups are expanded as they come."""
        slower = {key: 1 / np.array([work for work, _ in of]) for key, of in self._speeds.items()}
        if self._expanders:
            moved = self._moved(shares)
            expanders = [self._places[name] for name in self._expanders]
            busy = moved[:, expanders].max(axis=1) / np.maximum(moved[:, self.carriers].max(axis=1), _TINY)
            for key, of in self._by_side(self.interplays[self._expanders[0]].speeds, (1.0, 1.0)).items():
                lost = busy[:, None] * (1 - np.array([work for work, _ in of]))
                slower[key] = np.maximum(slower[key], 1 / (1 - lost))
        here, there = (self._work(shares, side, slower) for side in _SIDES)
        return np.minimum(*_chained(self._groups, shares, (here, there), self._latencies))

    @cached_property
    def _expanders(self) -> tuple[str, ...]:
        """The lanes on which 4-bit groups are expanded while operations run."""
        computing = {task.resource for task in self.there if _computed(task) is not None}
        lanes = dict.fromkeys(task.resource for task in self._expanding)
        return tuple(name for name in lanes if name not in computing)

    @property
    def _expanding(self) -> Iterator[Task]:
        return (task for task in (*self._coming, *self.packed) if task.kind == "decompress")

    def drag(self, shares: Shares) -> Numbers:
        """Which share of its speed (ways) the link keeps beside the operations of the host, most of the time."""
        dragged = {key: np.array([kept for _, kept in of]) for key, of in self._speeds.items()}
        here, there = (self._work(shares, side) for side in _SIDES)
        longest = np.maximum(here, there)
        lost = longest * (1 - self._work(shares, "host", dragged) / np.maximum(here, _TINY)) * (here > 0)
        return np.asarray(1 - lost.sum(axis=1) / np.maximum(longest.sum(axis=1), _TINY))

    def through(self, shares: Shares) -> tuple[Numbers, Numbers]:
        """Seconds (ways) from when something begins to come until the end of a block that waits for nothing else: what
        comes for an operation follows what comes for those before it. And seconds of what follows the last of these."""
        if self.link is None:
            return np.zeros(len(shares.host)), np.zeros(len(shares.host))
        coming = np.zeros_like(shares.host)
        for source, comes in shares.come.items():
            coming += comes * shares.accelerator * self._weights[source][:, self.carriers].max(axis=1)
        for division, tasks in self._rows.items():
            coming += shares.both[division] * tasks[:, self.carriers].max(axis=1)
        coming[:, OPS.index("attention")] += self._cached(shares)[:, self.carriers].max(axis=1)
        here, there = (self._work(shares, side) for side in ("host", "accelerator"))
        work = np.maximum(here, there)
        left = np.cumsum(work[:, ::-1], axis=1)[:, ::-1]
        through = np.where(coming > 0, np.cumsum(coming, axis=1) + there + left - work, 0.0).max(axis=1)
        after = np.where(coming > 0, left - work, np.inf).min(axis=1)
        return np.asarray(through), np.where(np.isfinite(after), after, 0.0)

    def exact(self, tasks: Sequence[Task], summed: Numbers) -> Numbers:
        """Seconds (lanes) of the graph of a block of a way whose sum of parts is `summed`."""
        total = self._total([task for task in tasks if task.layer is not None and not _entering(task)])
        work = TaskGraph(self.iteration, settled(tasks))
        path, times = self._path(work), [self._inside(task) for task in work.tasks]
        delayed = scheduled(work, self.costs.hardware, self._inside, self.costs.slowed()) - path.makespan(times)
        total[0] = delayed + min(path.at(times))
        for name, until in zip(TURNING, path.until(times), strict=True):
            total[self._places[name]] = delayed + until
        for name, each in self.beside.items():
            interplay = self.interplays[each.lane]
            busy = sum(interplay.counted(task, each.share) for task in tasks if _brings(task, each.lane))
            works = (_computed(task) is not None for task in work.tasks)
            counts = [
                interplay.kept(task, each.share) if own else 1 - each.share
                for task, own in zip(work.tasks, works, strict=True)
            ]
            slower = [seconds * count for seconds, count in zip(times, counts, strict=True)]
            total[self._places[name]] = path.until(slower, 1 - each.share)[1] + each.share * busy
        return np.maximum(total, summed)

    def _inside(self, task: Task) -> float:
        """Seconds of a task, none if the block before may have left what it brings where it is used."""
        return 0.0 if _entering(task) else self._price(task)

    def _path(self, work: TaskGraph) -> Crossed:
        last = [place for place, task in enumerate(work.tasks) if _computed(task) == OPS[-1]]
        here = tuple(place for place in last if self._side(work.tasks[place]) == "host")
        enters = next(self._side(task) for task in work.tasks if _computed(task) is not None)
        away = tuple(place for place in last if place not in here)
        return Crossed(work.tasks, (here, away), self._latencies, enters == "accelerator")

    def ends(self, tasks: Sequence[Task]) -> Numbers:
        """Seconds (lanes) of the ends of a model: what comes for blocks does so before the output of the last batch."""
        total, last = self._total(tasks), max((task.batch for task in tasks), default=0)
        after = self._sum(task for task in tasks if task.op in _OUTPUT and task.batch == last)
        total[0] = self._outside(tasks, last)
        for name, latency in zip(TURNING, self._latencies[::-1], strict=True):
            total[self._places[name]] = total[0] - latency
        total[self.carriers] += after
        for name, each in self.beside.items():
            crossing = (1 - each.share) * self._latencies[0]
            total[self._places[name]] = total[0] - each.share * (total[0] - after) - crossing
        return total

    def _outside(self, tasks: Sequence[Task], last: int) -> float:
        """Seconds of the chain outside blocks: the first batch begins, and the outputs of all follow each other; or all
        begin one after the other, and the last one's output follows."""
        once = self._sum(task for task in tasks if task.kind == "transfer" and not task.batch)
        works = [task for task in tasks if task.kind != "transfer"]
        outputs, begins = ([task for task in works if (task.op in _OUTPUT) == is_output] for is_output in (True, False))
        first = self._sum(task for task in begins if not task.batch) + self._sum(outputs)
        return once + max(first, self._sum(begins) + self._sum(task for task in outputs if task.batch == last))

    def _sum(self, tasks: Iterable[Task]) -> float:
        return sum(self._price(task) for task in tasks)

    @cached_property
    def link(self) -> str | None:
        """The lane on which weights come."""
        return next((task.resource for task in self.there if _weights_of(task) is not None), None)

    @cached_property
    def carriers(self) -> list[int]:
        """The columns of the links by which weights come, wherever from, and of what expands 4-bit groups."""
        coming = (task for task in (*self._coming, *self.packed) if _brought(task) and task.layer is not None)
        links = dict.fromkeys(task.resource for task in coming if task.kind == "transfer")
        return [self._places[name] for name in (*links, *self._expanders)]

    @property
    def _coming(self) -> Iterator[Task]:
        return (task for tasks in self.brought.values() for task in tasks)

    def balanced(self, op: str) -> float:
        """The share of an operation with which the accelerator takes as long as the host for the rest, both at work."""
        pair = [next((task for task in tasks if _computed(task) == op), None) for tasks in (self.here, self.there)]
        if pair[0] is None or pair[1] is None:
            return 0.5
        slower = delays(self.costs, pair[0], pair[1])
        here, there = (self._price(task) * factor for task, factor in zip(pair, slower, strict=True) if task)
        return here / (here + there) if here + there else 0.5

    def balanced_link(self, op: str, source: Source = "host") -> float:
        """The share of an operation whose rows come in the time in which the host does the rest, both at work."""
        here = next((task for task in self.here if _computed(task) == op), None)
        moving = [task for task in self.brought[source] if _weights_of(task) == op]
        if here is None or not moving:
            return self.balanced(op)
        largest = max(moving, key=self._price)
        work, link = delays(self.costs, here, largest)
        done, come = self._price(here) * work, self._price(largest) * link
        return done / (done + come)

    def _work(self, shares: Shares, side: str, factors: Mapping[tuple[str, str], Numbers] | None = None) -> Numbers:
        """Seconds (ways, operations) of what a side does, by side and graph so many times as long."""
        name, whole = ("here", shares.host) if side == "host" else ("there", shares.accelerator)
        parts = {name: whole, **{str(each): shares.both[each] for each in self.split}}
        scaled = {key: self._seconds[side, key] * (1.0 if factors is None else factors[side, key]) for key in parts}
        return np.asarray(sum(part * scaled[key] for key, part in parts.items()))

    def _counted(self, shares: Shares, each: Beside) -> Numbers:
        """Seconds (ways) of what keeps a lane busy as they count beside it."""
        found = np.zeros(len(shares.host))
        for source, tasks in self.brought.items():
            if source in shares.come:
                found = found + (shares.come[source] * shares.accelerator) @ self._counted_of(tasks, each)
        for division, tasks in self.split.items():
            found = found + shares.both[division] @ self._counted_of(tasks, each)
        plain, packed = (self._counted_caches(tasks, each) for tasks in (self.there, self.packed))
        return np.asarray(found + shares.cached * ((1 - shares.packed) * plain + shares.packed * packed))

    def _counted_of(self, tasks: Sequence[Task], each: Beside) -> Numbers:
        """By operation, of weights."""
        found, interplay = np.zeros(len(OPS)), self.interplays[each.lane]
        for task in tasks:
            op = _weights_of(task)
            if op is not None and _brings(task, each.lane):
                found[OPS.index(op)] += interplay.counted(task, each.share)
        return found

    def _counted_caches(self, tasks: Sequence[Task], each: Beside) -> float:
        coming = (task for task in tasks if _cache_comes(task) and _brings(task, each.lane))
        return sum(self.interplays[each.lane].counted(task, each.share) for task in coming)

    def _moved(self, shares: Shares) -> Numbers:
        """Seconds (ways, lanes) of what comes and goes."""
        found = np.zeros((len(shares.host), len(self.lanes)))
        for source, comes in shares.come.items():
            found += (comes * shares.accelerator) @ self._weights[source]
        for division, seconds in self._rows.items():
            found += shares.both[division] @ seconds
        return np.asarray(found + self._cached(shares) + _either(shares.sent, shares.packed, self._sent))

    def _cached(self, shares: Shares) -> Numbers:
        """Seconds (ways, lanes) of past keys and values that come."""
        return _either(shares.cached, shares.packed, self._cache)

    @cached_property
    def _groups(self) -> tuple[slice, ...]:
        """The groups of operations that the model has."""
        ends = np.cumsum([len(group) for group in GROUPS])
        there = {_computed(task) for task in self.here}
        parts = ((group, slice(int(end) - len(group), int(end))) for group, end in zip(GROUPS, ends, strict=True))
        return tuple(part for group, part in parts if there & set(group))

    @cached_property
    def _pools(self) -> Pools:
        return Pools(self.costs.hardware)

    @cached_property
    def _latencies(self) -> tuple[float, float]:
        """Of the links to the accelerator and back; none where both sides share a memory."""
        there = next(task.memories[-1] for task in self.there if _computed(task) is not None)
        pair = (self.host.memory, there)
        links = (self.costs.hardware.link(*pair), self.costs.hardware.link(*pair[::-1]))
        into, back = (0.0 if link is None else link.latency.value for link in links)
        return into, back

    def _price(self, task: Task) -> float:
        return self.costs.price(task).mid

    def _total(self, tasks: Sequence[Task]) -> Numbers:
        """Seconds by lane, chains left out, and activations in queues, which are others where anything streams."""
        found = np.zeros(len(self.lanes))
        for task in tasks:
            seconds = self._price(task)
            if task.resource in self._places and not _activation(task):
                found[self._places[task.resource]] += seconds
            for pool, drawn in self._pools.draws(task, seconds).items():
                found[self._places[f"pool {pool}"]] += drawn
        return found

    @cached_property
    def _places(self) -> Mapping[str, int]:
        return {name: place for place, name in enumerate(self.lanes)}

    def _by_op(self, tasks: Sequence[Task], op_of: Callable[[Task], str | None]) -> Numbers:
        found = np.zeros((len(OPS), len(self.lanes)))
        for task in tasks:
            op = op_of(task)
            if op is not None:
                found[OPS.index(op)] += self._total([task])
        return found

    @cached_property
    def _graphs(self) -> Mapping[str, tuple[Task, ...]]:
        split: Mapping[str, tuple[Task, ...]] = {str(division): tasks for division, tasks in self.split.items()}
        return {"here": self.here, "there": self.there, **split}

    @cached_property
    def _parts(self) -> Mapping[str, Numbers]:
        """Seconds (operations, lanes) of what is computed."""
        return {name: self._by_op(tasks, _computed) for name, tasks in self._graphs.items()}

    @cached_property
    def _weights(self) -> Mapping[Source, Numbers]:
        """Seconds (operations, lanes) of the weights that come to the accelerator alone, by where from."""
        return {source: self._by_op(tasks, _weights_of) for source, tasks in self.brought.items()}

    @cached_property
    def _rows(self) -> Mapping[Division, Numbers]:
        """The same of rows that both share, by how they are divided."""
        return {division: self._by_op(tasks, _weights_of) for division, tasks in self.split.items()}

    @cached_property
    def _seconds(self) -> Mapping[tuple[str, str], Numbers]:
        """Seconds by operation, of one batch, by side and graph."""
        found = {(side, name): np.zeros(len(OPS)) for side in ("host", "accelerator") for name in self._graphs}
        for name, tasks in self._graphs.items():
            for task in tasks:
                op = _computed(task)
                if op is not None and task.batch == 0:
                    found[self._side(task), name][OPS.index(op)] += self._price(task)
        return found

    @cached_property
    def _cache(self) -> tuple[Numbers, Numbers]:
        """Seconds by lane of past keys and values that come, as they are used and in 4-bit groups."""
        plain, packed = ([task for task in tasks if _cache_comes(task)] for tasks in (self.there, self.packed))
        return self._total(plain), self._total(packed)

    @cached_property
    def _sent(self) -> tuple[Numbers, Numbers]:
        """The same of new ones that go home."""
        plain, packed = ([task for task in tasks if _goes_home(task)] for tasks in (self.there, self.packed))
        return self._total(plain), self._total(packed)

    @cached_property
    def interplays(self) -> Mapping[str, Interplay]:
        """Of operations and what comes on the link, or what expands 4-bit groups, by lane."""
        tasks = [task for graph in self._graphs.values() for task in graph]
        working = [task for task in tasks if _computed(task) is not None]
        tasks += [*(task for of in self.others.values() for task in of), *self.packed]
        lanes = (*(() if self.link is None else (self.link,)), *self._expanders)
        return {lane: Interplay(self.costs, working, [task for task in tasks if _brings(task, lane)]) for lane in lanes}

    @cached_property
    def _speeds(self) -> Mapping[tuple[str, str], list[tuple[float, float]]]:
        """By side and graph, of every operation and the fastest transfer beside each other."""
        return self._by_side(self.interplays[self.link].speeds if self.link else lambda task: (1.0, 1.0), (1.0, 1.0))

    def _kept(self, beside: Beside | None) -> Mapping[tuple[str, str], Numbers] | None:
        """By side and graph, how much a second of every operation counts; a link of another accelerator slows the host
        only."""
        if beside is None:
            return None
        found = self._by_side(lambda task: beside.interplay.kept(task, beside.share), 1.0)
        away = {key: 1 - beside.share for key in found if key[0] == "accelerator" and beside.far}
        return {key: np.full(len(OPS), away[key]) if key in away else np.array(of) for key, of in found.items()}

    def _by_side(self, of: Callable[[Task], FoundT], none: FoundT) -> dict[tuple[str, str], list[FoundT]]:
        found = {(side, name): [none] * len(OPS) for side in _SIDES for name in self._graphs}
        for name, tasks in self._graphs.items():
            for task in tasks:
                op = _computed(task)
                if op is not None and task.batch == 0:
                    found[self._side(task), name][OPS.index(op)] = of(task)
        return found

    def _side(self, task: Task) -> str:
        return "host" if task.resource == self.host.name else "accelerator"

    @cached_property
    def beside(self) -> Mapping[str, Beside]:
        """Chains beside a busy link, or beside what expands 4-bit groups, by what a second of that counts: what an
        operation that runs meanwhile loses for it, the largest of these, and all."""
        found = (each for lane, interplay in self.interplays.items() for each in self._besides(lane, interplay))
        return {f"{CHAIN} beside {each.share:g} of {each.lane}": each for each in found}

    def _besides(self, lane: str, interplay: Interplay) -> Iterator[Beside]:
        speeds = self._by_side(interplay.speeds, (1.0, 1.0))
        pairs = [*speeds["host", "here"], *speeds["accelerator", "there"]]
        costs = np.array([min(1.0, (1 - work) / link) for work, link in pairs])
        rounded, first = np.unique(np.round(costs, 3), return_index=True)
        slowed = any(link < 1.0 for _, link in pairs)
        largest = [*costs[first[rounded > 0.0]][::-1][:_MOST_LOSSES]]
        for value in (*largest, *([1.0] if slowed and rounded[-1] < 1.0 else [])):
            yield Beside(lane, float(value), interplay)


def _chained(
    groups: Sequence[slice], shares: Shares, seconds: tuple[Numbers, Numbers], crossing: tuple[float, float]
) -> tuple[Numbers, Numbers]:
    """Seconds (ways) from when what a block reads is on a side until what it makes is on the host, and on the
    accelerator, as the next block's norm needs it. `seconds` (ways, operations) on host and accelerator; `crossing` to
    the latter and back."""
    (here, there), (into, back) = seconds, crossing
    at_host = at_accelerator = np.zeros(len(here))
    for part in groups:
        works, works_away = (whole[:, part] + shares.shared[:, part] > 0 for whole in (shares.host, shares.accelerator))
        end, crossed = _side_done(works, at_host, here[:, part], into)
        end_away, crossed_back = _side_done(works_away, at_accelerator, there[:, part], back)
        at_host, at_accelerator = np.maximum(end, crossed_back), np.maximum(end_away, crossed)
    return at_host, at_accelerator


def _either(some: Numbers, packed: Numbers, seconds: tuple[Numbers, Numbers]) -> Numbers:
    """Seconds (ways, lanes) of `some` ways, as they are used or `packed`."""
    plain, groups = seconds
    return np.asarray((some * (1 - packed))[:, None] * plain + (some * packed)[:, None] * groups)


def _side_done(works: Bools, begin: Numbers, seconds: Numbers, crossing: float) -> tuple[Numbers, Numbers]:
    """When a side has done its part of a group (ways, operations) that it `works` on, and when all of that is on the
    other side: every operation's crosses by itself, one after the other. 0 where it does nothing."""
    some, count = works.any(axis=1), works.sum(axis=1)
    end = begin + seconds.sum(axis=1)
    first = begin + np.where(works, seconds, np.inf).min(axis=1, initial=np.inf)
    crossed = np.maximum(end + crossing, np.where(some, first, 0.0) + count * crossing)
    return np.where(some, end, 0.0), np.where(some, crossed, 0.0)


def settled(tasks: Sequence[Task]) -> tuple[Task, ...]:
    """The first batch's tasks of the only block of a graph as if all that is brought were there, and nothing sent home
    for which nobody waits."""
    needed = {dep for task in tasks for dep in task.deps}
    number: dict[int, int] = {}
    found: list[Task] = []
    for index, task in enumerate(tasks):
        idle = task.kind == "transfer" and index not in needed
        if task.layer is not None and task.batch == 0 and not _brought(task) and not idle:
            number[index] = len(found)
            found.append(replace(task, deps=tuple(number[dep] for dep in task.deps if dep in number)))
    return tuple(found)


def _entering(task: Task) -> bool:
    """Whether a task takes the hidden state with which a block is entered to another side."""
    return task.kind == "transfer" and task.op == "hidden"


def _activation(task: Task) -> bool:
    """Whether a task moves what operations made."""
    return task.kind == "transfer" and not _brought(task) and not _goes_home(task)


def _brought(task: Task) -> bool:
    """Whether a task brings or expands what lives elsewhere."""
    return task.kind in _MOVING and (".weights" in task.op or _cache_comes(task))


def _cache_comes(task: Task) -> bool:
    """Whether a task brings or expands past keys and values."""
    return task.kind in _MOVING and task.op.partition(".")[0] == "kv" and not _goes_home(task)


def _brings(task: Task, lane: str) -> bool:
    """Whether a task brings or expands weights, or keys and values, on a lane."""
    return task.resource == lane and (_weights_of(task) is not None or _cache_comes(task))


def _goes_home(task: Task) -> bool:
    return task.kind == "transfer" and task.op == "kv" and ".new" in task.id


def _computed(task: Task) -> str | None:
    return task.op if task.layer is not None and task.kind not in _MOVING else None


def _weights_of(task: Task) -> str | None:
    """The operation for which weights come, or are expanded."""
    op, _, rest = task.op.partition(".")
    return op if task.layer is not None and task.kind in _MOVING and rest.startswith("weights") else None
