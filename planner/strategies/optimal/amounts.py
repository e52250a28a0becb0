"""What a block asks of every lane in one phase, for every way: sums of prices of the tasks that lowering makes.

A few blocks are lowered: on the host, on the accelerator and shared by both, with everything coming from wherever it
may; every way is a sum of their parts. Such sums leave out most of what crosses inside a block and what its parts cost
each other in memories that they share, so they are at most what the way really asks for; `exact` lowers the way
itself."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from helmsman.lowering.graph import Task, TaskGraph
from helmsman.planner.predict import scheduled
from helmsman.planner.strategies.optimal.besides import Beside
from helmsman.planner.strategies.optimal.block_ways import Division, Source
from helmsman.planner.strategies.optimal.chains import OPS, Doing, chained, followed_through
from helmsman.planner.strategies.optimal.critical_path import Crossed, finished
from helmsman.planner.strategies.optimal.lowered_parts import SIDES, TURNING, LoweredParts
from helmsman.planner.strategies.optimal.pace import LEAST
from helmsman.planner.strategies.optimal.steps import Steps
from helmsman.planner.strategies.optimal.task_kinds import (
    OUTPUT,
    activation,
    cache_comes,
    computed,
    entering,
    goes_home,
    settled,
    weights_of,
)
from helmsman.planner.strategies.optimal.ways import Numbers

_TINY = 1e-300


@dataclass(frozen=True)
class Basis(LoweredParts):
    """What every way asks for in one phase, made of parts that are lowered once."""

    def of(self, shares: Doing) -> Numbers:
        """Seconds (ways, lanes)."""
        lanes = shares.host @ self._parts["here"] + shares.accelerator @ self._parts["there"] + self._moved(shares)
        for division in self.split:
            lanes = lanes + shares.both[division] @ self._parts[division]
        lanes[:, 0], *turning = self.chains(shares)
        for name, chain in zip(TURNING, turning, strict=True):
            lanes[:, self._places[name]] = chain
        for name, each in self.beside.items():
            lanes[:, self._places[name]] = self.chains(shares, each)[2] + self._counted(shares, each)
        return lanes

    def chains(self, shares: Doing, beside: Beside | None = None, far: bool = False) -> tuple[Numbers, ...]:
        """Seconds (ways) from the first operation to the last, of which both sides do their parts at once: until all is
        on a side; then from when all is on the host until it is there again, and on the accelerator.

        What one side has made is on the other after the latency of its link. A block that begins on the other side
        begins by at most that latency sooner. `beside`: as they count beside a busy lane, `far`: of another
        accelerator, so that it slows the host only."""
        counts = self._kept(beside, far)
        here, there = (self._work(shares, side, counts) for side in SIDES)
        into, back = ((beside.idle if beside else 1.0) * latency for latency in self._latencies)
        at_host, at_accelerator = chained(self._groups, shares, (here, there), (into, back))
        enters = shares.accelerator[:, OPS.index("norm1")]
        home, away = at_host - back * enters, at_accelerator - into * (1 - enters)
        return np.minimum(at_host, at_accelerator), home, away

    def slowed(self, shares: Doing, every: bool = False) -> Numbers:
        """Seconds (ways) of the chain while the link, or `every` accelerator's, never rests, and 4-bit groups are
        expanded as they come."""
        slower = self._slower(every)
        if self._expanders:
            moved = self._moved(shares)
            expanders = [self._places[name] for name in self._expanders]
            busy = moved[:, expanders].max(axis=1) / np.maximum(moved[:, self.carriers].max(axis=1), _TINY)
            for key, of in self._by_side(self.interplays[self._expanders[0]].speeds, (1.0, 1.0)).items():
                lost = busy[:, None] * (1 - np.array([work for work, _ in of]))
                slower[key] = np.maximum(slower[key], 1 / (1 - lost))
        here, there = (self._work(shares, side, slower) for side in SIDES)
        return np.minimum(*chained(self._groups, shares, (here, there), self._latencies))

    def drag(self, shares: Doing, every: bool = False) -> Numbers:
        """Which share of its speed (ways) the link keeps beside the operations of the host, most of the time; if
        `every` link is busy, of what it has then."""
        dragged = self._dragged(every)
        here, there = (self._work(shares, side) for side in SIDES)
        longest = np.maximum(here, there)
        lost = longest * (1 - self._work(shares, "host", dragged) / np.maximum(here, _TINY)) * (here > 0)
        return np.asarray(1 - lost.sum(axis=1) / np.maximum(longest.sum(axis=1), _TINY))

    def through(self, shares: Doing) -> tuple[Numbers, Numbers]:
        """Seconds (ways) from when something begins to come until the end of a block that waits for nothing else: what
        comes for an operation follows what comes for those before it. And seconds of what follows the last of these."""
        if self.link is None:
            return np.zeros(len(shares.host)), np.zeros(len(shares.host))
        coming = self._come(shares)
        here, there = (self._work(shares, side) for side in SIDES)
        work = np.maximum(here, there)
        left = np.cumsum(work[:, ::-1], axis=1)[:, ::-1]
        through = np.where(coming > 0, np.cumsum(coming, axis=1) + there + left - work, 0.0).max(axis=1)
        after = np.where(coming > 0, left - work, np.inf).min(axis=1)
        return np.asarray(through), np.where(np.isfinite(after), after, 0.0)

    def steps(self, shares: Doing) -> Steps:
        """Every group of operations as two steps: one that waits for nothing, and as much as the accelerator does of it
        where that needs what comes."""
        slower, dragged = self._slower(False), self._dragged(False)
        host, kept, there = self._work(shares, "host"), self._work(shares, "host", dragged), self._accelerated(shares)
        alone, beside = self._through(shares), self._through(shares, slower)
        longest, lost = np.maximum(self._grouped(host), there), self._grouped(host - kept)
        coming = self._grouped(self._come(shares))
        waits = np.where(coming > 0, np.minimum(there, alone), 0.0)
        loss = np.where(alone > 0, 1 - np.clip(alone / np.maximum(beside, _TINY), LEAST, 1.0), 0.0)
        needs = np.where(coming > 0, coming.cumsum(axis=1), 0.0)
        return Steps(
            seconds=_paired(alone - waits, waits),
            loss=_paired(loss, loss),
            drag=_paired(*2 * (np.maximum(LEAST, 1 - lost / np.maximum(longest, _TINY)),)),
            needs=_paired(np.zeros_like(needs), needs),
            link=coming.sum(axis=1),
        )

    def _accelerated(self, shares: Doing) -> Numbers:
        return self._grouped(self._work(shares, "accelerator"))

    def _grouped(self, seconds: Numbers) -> Numbers:
        """Seconds (ways, groups) of operations that do not wait for each other."""
        return np.stack([seconds[:, part].sum(axis=1) for part in self._groups], axis=1)

    def _through(self, shares: Doing, factors: Mapping[tuple[str, str], Numbers] | None = None) -> Numbers:
        """Seconds (ways, groups) that every group adds to the chain."""
        work = (self._work(shares, "host", factors), self._work(shares, "accelerator", factors))
        ends = [np.minimum(*ends) for ends in followed_through(self._groups, shares, work, self._latencies)]
        return np.diff(np.stack(ends, axis=1), axis=1, prepend=0.0)

    def _come(self, shares: Doing) -> Numbers:
        """Seconds (ways, operations) of what comes for every operation."""
        found = np.zeros_like(shares.host)
        for source, comes in shares.come.items():
            found += comes * shares.accelerator * self._weights[source][:, self.carriers].max(axis=1)
        for division, tasks in self._rows.items():
            found += shares.both[division] * tasks[:, self.carriers].max(axis=1)
        found[:, OPS.index("attention")] += self._cached(shares)[:, self.carriers].max(axis=1)
        return found

    def exact(self, tasks: Sequence[Task], summed: Numbers) -> Numbers:
        """Seconds (lanes) of the graph of a block of a way whose sum of parts is `summed`."""
        total = self._total([task for task in tasks if task.layer is not None and not entering(task)])
        work = TaskGraph(self.iteration, settled(tasks))
        path, times = self._path(work), [self._inside(task) for task in work.tasks]
        delayed = self._delayed(work)
        if self.iteration.phase == "prefill" and any(map(goes_home, tasks)):
            delayed = max(delayed, self._delayed(TaskGraph(self.iteration, settled(tasks, True))))
        total[0] = delayed + min(path.at(times))
        for name, until in zip(TURNING, path.until(times), strict=True):
            total[self._places[name]] = delayed + until
        for name, each in self.beside.items():
            counts = (each.kept(task) if computed(task) is not None else each.idle for task in work.tasks)
            slower = [seconds * count for seconds, count in zip(times, counts, strict=True)]
            total[self._places[name]] = path.until(slower, each.idle)[1] + sum(map(each.counted, tasks))
        return np.maximum(total, summed)

    def _delayed(self, work: TaskGraph) -> float:
        """Seconds that the operations of a block are longer under way because links and memories are shared. What is
        sent home counts only as far as it is there before they are done, at half its speed."""
        ends = finished(work.tasks, [self._inside(task) for task in work.tasks])
        home = {task.id: end for task, end in zip(work.tasks, ends, strict=True) if goes_home(task)}
        done = max(end for task, end in zip(work.tasks, ends, strict=True) if not goes_home(task))

        def inside(task: Task) -> float:
            seconds = self._inside(task)
            return min(seconds, max(0.0, done - home[task.id] + seconds) / 2) if task.id in home else seconds

        return scheduled(work, self.costs.hardware, inside, self.costs.slowed()) - done

    def _inside(self, task: Task) -> float:
        """Seconds of a task, none if the block before may have left what it brings where it is used."""
        return 0.0 if entering(task) else self._price(task)

    def _path(self, work: TaskGraph) -> Crossed:
        last = [place for place, task in enumerate(work.tasks) if computed(task) == OPS[-1]]
        here = tuple(place for place in last if self._side(work.tasks[place]) == "host")
        enters = next(self._side(task) for task in work.tasks if computed(task) is not None)
        away = tuple(place for place in last if place not in here)
        return Crossed(work.tasks, (here, away), self._latencies, enters == "accelerator")

    def ends(self, tasks: Sequence[Task], blocks: int) -> Numbers:
        """Seconds (lanes) of the ends of a model of so many blocks: what these ask for is done before the output of the
        last batch begins, but for keys and values that go home."""
        last = max((task.batch for task in tasks), default=0)
        outputs = [task for task in tasks if task.op in OUTPUT and task.batch == last]
        after, total = self._sum(outputs), self._total(tasks)
        left = after - self._total(outputs) - blocks * np.maximum(*self._sent)
        total += self._asked * np.maximum(0.0, left)
        total[0] = self._outside(tasks, last)
        for name, latency in zip(TURNING, self._latencies[::-1], strict=True):
            total[self._places[name]] = total[0] - latency
        for name, each in self.beside.items():
            crossing = each.idle * self._latencies[0]
            total[self._places[name]] = total[0] - (1 - each.idle) * (total[0] - after) - crossing
        return total

    @cached_property
    def _asked(self) -> NDArray[np.bool_]:
        """Which lanes blocks may ask for, chains left out."""
        return self._total((*self.here, *self._coming, *self.packed)) > 0

    def _outside(self, tasks: Sequence[Task], last: int) -> float:
        """Seconds of the chain outside blocks: the first batch begins, and the outputs of all follow each other; or all
        begin one after the other, and the last one's output follows."""
        once = self._sum(task for task in tasks if task.kind == "transfer" and not task.batch)
        works = [task for task in tasks if task.kind != "transfer"]
        outputs, begins = ([task for task in works if (task.op in OUTPUT) == is_output] for is_output in (True, False))
        first = self._sum(task for task in begins if not task.batch) + self._sum(outputs)
        return once + max(first, self._sum(begins) + self._sum(task for task in outputs if task.batch == last))

    def _work(self, shares: Doing, side: str, factors: Mapping[tuple[str, str], Numbers] | None = None) -> Numbers:
        """Seconds (ways, operations) of what a side does, by side and graph so many times as long."""
        name, whole = ("here", shares.host) if side == "host" else ("there", shares.accelerator)
        parts = {name: whole, **{str(each): shares.both[each] for each in self.split}}
        scaled = {key: self._seconds[side, key] * (1.0 if factors is None else factors[side, key]) for key in parts}
        return np.asarray(sum(part * scaled[key] for key, part in parts.items()))

    def _counted(self, shares: Doing, each: Beside) -> Numbers:
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
        found = np.zeros(len(OPS))
        for task in tasks:
            op = weights_of(task)
            if op is not None:
                found[OPS.index(op)] += each.counted(task)
        return found

    def _counted_caches(self, tasks: Sequence[Task], each: Beside) -> float:
        return sum(each.counted(task) for task in tasks if cache_comes(task))

    def _moved(self, shares: Doing) -> Numbers:
        """Seconds (ways, lanes) of what comes and goes."""
        found = np.zeros((len(shares.host), len(self.lanes)))
        for source, comes in shares.come.items():
            found += (comes * shares.accelerator) @ self._weights[source]
        for division, seconds in self._rows.items():
            found += shares.both[division] @ seconds
        return np.asarray(found + self._cached(shares) + _either(shares.sent, shares.packed, self._sent))

    def _cached(self, shares: Doing) -> Numbers:
        """Seconds (ways, lanes) of past keys and values that come."""
        return _either(shares.cached, shares.packed, self._cache)

    def _total(self, tasks: Sequence[Task]) -> Numbers:
        """Seconds by lane, chains left out, and activations in queues, which are others where anything streams."""
        found = np.zeros(len(self.lanes))
        for task in tasks:
            seconds = self._price(task)
            if task.resource in self._places and not activation(task):
                found[self._places[task.resource]] += seconds
            for pool, drawn in self.costs.pools.draws(task, seconds).items():
                found[self._places[f"pool {pool}"]] += drawn
        return found

    def _by_op(self, tasks: Sequence[Task], op_of: Callable[[Task], str | None]) -> Numbers:
        found = np.zeros((len(OPS), len(self.lanes)))
        for task in tasks:
            op = op_of(task)
            if op is not None:
                found[OPS.index(op)] += self._total([task])
        return found

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
        """The same of rows that both share, by how they are divided."""
        return {division: self._by_op(tasks, weights_of) for division, tasks in self.split.items()}

    @cached_property
    def _seconds(self) -> Mapping[tuple[str, str], Numbers]:
        """Seconds by operation, of one batch, by side and graph."""
        found = {(side, name): np.zeros(len(OPS)) for side in SIDES for name in self._graphs}
        for name, tasks in self._graphs.items():
            for task in tasks:
                op = computed(task)
                if op is not None and task.batch == 0:
                    found[self._side(task), name][OPS.index(op)] += self._price(task)
        return found

    @cached_property
    def _cache(self) -> tuple[Numbers, Numbers]:
        """Seconds by lane of past keys and values that come, as they are used and in 4-bit groups."""
        plain, packed = ([task for task in tasks if cache_comes(task)] for tasks in (self.there, self.packed))
        return self._total(plain), self._total(packed)

    @cached_property
    def _sent(self) -> tuple[Numbers, Numbers]:
        """The same of new ones that go home."""
        plain, packed = ([task for task in tasks if goes_home(task)] for tasks in (self.there, self.packed))
        return self._total(plain), self._total(packed)

    def _slower(self, every: bool) -> dict[tuple[str, str], Numbers]:
        """How many times longer an operation takes beside the link, or every one."""
        return {key: 1 / np.array([work for work, _ in of]) for key, of in self._speeds(every).items()}

    def _dragged(self, every: bool) -> Mapping[tuple[str, str], Numbers]:
        """Which share of its speed the link keeps beside an operation, or every one does."""
        return {key: np.array([kept for _, kept in of]) for key, of in self._speeds(every).items()}

    def _speeds(self, every: bool) -> Mapping[tuple[str, str], list[tuple[float, float]]]:
        """By side and graph, of every operation and the fastest transfer beside each other; or of it and `every` link,
        as a share of what that has then."""
        if every and self.links is not None:
            return self._by_side(self.links.together, (1.0, 1.0))
        return self._by_side(self.interplays[self.link].speeds if self.link else lambda task: (1.0, 1.0), (1.0, 1.0))

    def _kept(self, beside: Beside | None, far: bool) -> Mapping[tuple[str, str], Numbers] | None:
        """By side and graph, how much a second of every operation counts; a `far` link slows the host only."""
        if beside is None:
            return None
        found = self._by_side(beside.kept, 1.0)
        away = {key: beside.idle for key in found if key[0] == "accelerator" and far}
        return {key: np.full(len(OPS), away[key]) if key in away else np.array(of) for key, of in found.items()}


def _either(some: Numbers, packed: Numbers, seconds: tuple[Numbers, Numbers]) -> Numbers:
    """Seconds (ways, lanes) of `some` ways, as they are used or `packed`."""
    plain, groups = seconds
    return np.asarray((some * (1 - packed))[:, None] * plain + (some * packed)[:, None] * groups)


def _paired(first: Numbers, second: Numbers) -> Numbers:
    """Columns of two in turns."""
    return np.stack([first, second], axis=2).reshape(len(first), -1)
