"""What a block asks of every lane in one phase, for every way: sums of prices of the tasks that lowering makes.

Three blocks are lowered: on the host, on the accelerator with everything coming, and shared by both; every way is a sum
of their parts. Such sums leave out most of what crosses inside a block and what its parts cost each other in memories
that they share, so they are at most what the way really asks for; `exact` lowers the way itself."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from helmsman.lowering.graph import Task, TaskGraph
from helmsman.lowering.pools import Pools
from helmsman.planner.costs import CostModel
from helmsman.planner.predict import scheduled
from helmsman.planner.strategies.optimal.block_ways import Division
from helmsman.planner.strategies.optimal.critical_path import Crossed
from helmsman.planner.strategies.optimal.ways import Numbers
from helmsman.planner.strategies.streaming.shared_rows import delays
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.hardware import Device

Bools = NDArray[np.bool_]

CHAIN = "chain"
"""The lane in which operations of one batch follow each other."""

GROUPS = (("norm1",), ("q", "k", "v"), ("append",), ("attention",), ("o",), ("norm2",), ("gate",), ("up",), ("down",))
"""Operations of a block in order; those of a group do not wait for each other."""

OPS = tuple(op for group in GROUPS for op in group)

_TURNING = ("chain back to the host", "chain back to the accelerator")
"""The chain with what brings the hidden state back to the side where the next block is entered."""

_MOVING = ("transfer", "decompress", "pin")
_MOST_LOSSES = 3
"""So many different losses beside a busy link are told apart."""


@dataclass(frozen=True, eq=False)
class Shares:
    """Who does an operation in every way (ways, operations), 0 or 1: the `host`, the `accelerator`, or, by division,
    `both`; `come`: whether the accelerator's rows of its weights come.

    `cached`, `sent` (ways): whether past keys and values come, and new ones go home."""

    host: Numbers
    both: Mapping[Division, Numbers]
    accelerator: Numbers
    come: Numbers
    cached: Numbers
    sent: Numbers

    @property
    def shared(self) -> Numbers:
        """Which operations both do."""
        return np.asarray(sum(self.both.values()))


@dataclass(frozen=True)
class Basis:
    """The tasks of a block in one phase: `here` on the `host`, `there` on the accelerator, to which all comes; where
    that is possible, `split` between both in every division."""

    costs: CostModel
    iteration: Iteration
    host: Device
    here: tuple[Task, ...]
    there: tuple[Task, ...]
    split: Mapping[Division, tuple[Task, ...]]

    @cached_property
    def lanes(self) -> tuple[str, ...]:
        """What is counted, in order: the chain, queues, memories and links that several share, and the chain beside a
        busy link."""
        queues = dict.fromkeys(task.resource for task in (*self.here, *self.there))
        pools = (f"pool {name}" for name in self._pools.capacity)
        return (CHAIN, *queues, *pools, *_TURNING, *self.beside)

    def of(self, shares: Shares) -> Numbers:
        """Seconds (ways, lanes)."""
        lanes = shares.host @ self._parts["here"] + shares.accelerator @ self._parts["there"] + self._moved(shares)
        for division in self.split:
            lanes = lanes + shares.both[division] @ self._parts[division]
        lanes[:, 0] = self.chain(shares)
        for name, more in zip(_TURNING, self._turning(shares), strict=True):
            lanes[:, self._places[name]] = lanes[:, 0] + more
        link = lanes[:, self.lanes.index(self.link)] if self.link else np.zeros(len(lanes))
        for name, share in self.beside.items():
            lanes[:, self.lanes.index(name)] = self.chain(shares, beside=share) + share * link
        return lanes

    def chain(self, shares: Shares, beside: float = 0.0, link: "Basis | None" = None) -> Numbers:
        """Seconds (ways) from the first operation to the last, of which both sides do their parts at once.

        What one side has made is on the other after the latency of its link. `beside`: of operations that delay each
        second of what comes by less than this, as many seconds less as that leaves the link in their time; the `link`
        of another accelerator slows the host only."""
        losses = (
            self.losses if link is None else {**link.losses, "accelerator": (np.zeros(len(OPS)), np.ones(len(OPS)))}
        )
        here, there = (self._durations(shares, side, losses[side], beside) for side in ("host", "accelerator"))
        into, back = ((1 - beside) * latency for latency in self._latencies)
        return _chained(self._groups, shares, (here, there), (into, back))

    def _turning(self, shares: Shares) -> tuple[Numbers, Numbers]:
        """Seconds (ways) more for a block that is entered on the host and left on the accelerator, and the other way
        round; less where that turns another one back.

        Blocks in a row pay for every turn that none of them takes back, but for one."""
        first, last = OPS.index("norm1"), OPS.index("down")
        enters = shares.accelerator[:, first] + shares.shared[:, first]
        into, back = self._latencies
        leaves = shares.accelerator[:, last]
        return back * (leaves - enters), into * (enters - np.maximum(leaves, shares.shared[:, last]))

    def slowed(self, shares: Shares) -> Numbers:
        """Seconds (ways) of the chain while the link never rests."""
        here, there = (self._work(shares, side) / (1 - self.losses[side][0]) for side in ("host", "accelerator"))
        return _chained(self._groups, shares, (here, there), self._latencies)

    def drag(self, shares: Shares) -> Numbers:
        """Which share of its speed (ways) the link keeps beside the operations, most of the time."""
        work = [self._work(shares, side) for side in ("host", "accelerator")]
        kept = np.minimum(
            *(
                np.where(done > 0, self.losses[side][1], 1.0)
                for side, done in zip(("host", "accelerator"), work, strict=True)
            )
        )
        longest = np.maximum(*work)
        return np.asarray((longest * kept).sum(axis=1) / np.maximum(longest.sum(axis=1), 1e-300))

    def through(self, shares: Shares) -> tuple[Numbers, Numbers]:
        """Seconds (ways) from when something begins to come until the end of a block that waits for nothing else: what
        comes for an operation follows what comes for those before it. And seconds of what follows the last of these."""
        if self.link is None:
            return np.zeros(len(shares.host)), np.zeros(len(shares.host))
        lane = self._places[self.link]
        coming = shares.come * shares.accelerator * self._by_op(self.there, _weights_of)[:, lane]
        for division, tasks in self.split.items():
            coming = coming + shares.both[division] * self._by_op(tasks, _weights_of)[:, lane]
        coming[:, OPS.index("attention")] += shares.cached * self._cache[lane]
        here, there = (self._work(shares, side) for side in ("host", "accelerator"))
        work = np.maximum(here, there)
        left = np.cumsum(work[:, ::-1], axis=1)[:, ::-1]
        through = np.where(coming > 0, np.cumsum(coming, axis=1) + there + left - work, 0.0).max(axis=1)
        after = np.where(coming > 0, left - work, np.inf).min(axis=1)
        return np.asarray(through), np.where(np.isfinite(after), after, 0.0)

    def exact(self, tasks: Sequence[Task], summed: Numbers) -> Numbers:
        """Seconds (lanes) of the graph of a block of a way whose sum of parts is `summed`."""
        total = self._total([task for task in tasks if task.layer is not None])
        work = TaskGraph(self.iteration, settled(tasks))
        path, times = self._path(work), [self._price(task) for task in work.tasks]
        delayed = scheduled(work, self.costs.hardware, self._price, self.costs.slowed())
        chain = delayed + path.seconds(times) - path.makespan(times)
        total[0] = max(summed[0], chain)
        more = total[0] - summed[0]
        for name in _TURNING:
            total[self._places[name]] = summed[self._places[name]] + more
        if self.link is not None:
            link = total[self._places[self.link]]
            for name, share in self.beside.items():
                slower = [self._beside(task, share) for task in work.tasks]
                total[self._places[name]] = path.seconds(slower, 1 - share) + share * link
        return np.maximum(total, summed)

    def _path(self, work: TaskGraph) -> Crossed:
        last = [place for place, task in enumerate(work.tasks) if _computed(task) == OPS[-1]]
        here = tuple(place for place in last if work.tasks[place].resource == self.host.name)
        return Crossed(work.tasks, (here, tuple(place for place in last if place not in here)), self._latencies)

    def _beside(self, task: Task, share: float) -> float:
        """Seconds of a task that count where each second of what comes counts for a `share` of one."""
        kept = 1 - share
        if (op := _computed(task)) is not None:
            losses = self.losses["host" if task.resource == self.host.name else "accelerator"]
            loss, speed = (each[OPS.index(op)] for each in losses)
            kept = 1 - max(0.0, share * speed - loss) / (1 - loss)
        return float(self._price(task) * kept)

    def ends(self, tasks: Sequence[Task]) -> Numbers:
        """Seconds (lanes) of the ends of a model: what comes for blocks does so before the output."""
        total, after = self._total(tasks), sum(self._price(task) for task in tasks if task.op in ("final_norm", "head"))
        total[0] = sum(self._price(task) for task in tasks)
        for name, latency in zip(_TURNING, self._latencies[::-1], strict=True):
            total[self._places[name]] = total[0] - latency
        if self.link:
            total[self._places[self.link]] += after
        for name, share in self.beside.items():
            total[self._places[name]] = total[0] - share * (total[0] - after)
        return total

    def alone(self, side: str) -> Numbers:
        """Seconds by operation of one batch where one side does all of it: `host` or `accelerator`."""
        return self._seconds[side, "here" if side == "host" else "there"]

    @cached_property
    def link(self) -> str | None:
        """The lane on which weights come."""
        return next((task.resource for task in self.there if _weights_of(task) is not None), None)

    def balanced(self, op: str) -> float:
        """The share of an operation with which the accelerator takes as long as the host for the rest, both at work."""
        pair = [next((task for task in tasks if _computed(task) == op), None) for tasks in (self.here, self.there)]
        if pair[0] is None or pair[1] is None:
            return 0.5
        slower = delays(self.costs, pair[0], pair[1])
        here, there = (self._price(task) * factor for task, factor in zip(pair, slower, strict=True) if task)
        return here / (here + there) if here + there else 0.5

    def balanced_link(self, op: str) -> float:
        """The share of an operation whose rows come in the time in which the host does the rest, both at work."""
        here = next((task for task in self.here if _computed(task) == op), None)
        moving = [task for task in self.there if _weights_of(task) == op]
        if here is None or not moving:
            return self.balanced(op)
        largest = max(moving, key=self._price)
        work, link = delays(self.costs, here, largest)
        done, come = self._price(here) * work, self._price(largest) * link
        return done / (done + come)

    def _work(self, shares: Shares, side: str) -> Numbers:
        """Seconds (ways, operations) of what a side does."""
        whole = shares.host if side == "host" else shares.accelerator
        return whole * self.alone(side) + sum(shares.both[each] * self._seconds[side, each] for each in self.split)

    def _durations(self, shares: Shares, side: str, losses: tuple[Numbers, Numbers], beside: float) -> Numbers:
        """The same with as many seconds less as leaves a link in their time that costs them such `losses`."""
        loss, speed = losses
        return np.asarray(self._work(shares, side) * (1 - np.maximum(0.0, beside * speed - loss) / (1 - loss)))

    def _moved(self, shares: Shares) -> Numbers:
        """Seconds (ways, lanes) of what comes and goes."""
        weights = (shares.come * shares.accelerator) @ self._by_op(self.there, _weights_of)
        for division, tasks in self.split.items():
            weights = weights + shares.both[division] @ self._by_op(tasks, _weights_of)
        return np.asarray(weights + shares.cached[:, None] * self._cache + shares.sent[:, None] * self._sent)

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
        """Seconds by lane, chains left out."""
        found = np.zeros(len(self.lanes))
        for task in tasks:
            seconds = self._price(task)
            if task.resource in self._places:
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
    def _seconds(self) -> Mapping[tuple[str, str], Numbers]:
        """Seconds by operation, of one batch, by side and graph."""
        found = {(side, name): np.zeros(len(OPS)) for side in ("host", "accelerator") for name in self._graphs}
        for name, tasks in self._graphs.items():
            for task in tasks:
                op = _computed(task)
                if op is not None and task.batch == 0:
                    side = "host" if task.resource == self.host.name else "accelerator"
                    found[side, name][OPS.index(op)] += self._price(task)
        return found

    @cached_property
    def _cache(self) -> Numbers:
        return self._total([task for task in self.there if task.op == "kv" and not _goes_home(task)])

    @cached_property
    def _sent(self) -> Numbers:
        return self._total([task for task in self.there if _goes_home(task)])

    @cached_property
    def losses(self) -> Mapping[str, tuple[Numbers, Numbers]]:
        """By side and operation, which share of its speed it loses while something comes, and which share of its own
        speed that keeps."""
        moving = [task for task in self.there if _weights_of(task) is not None]
        largest = max(moving, key=lambda task: task.bytes, default=None)
        return {"host": self._beside_link(self.here, largest), "accelerator": self._beside_link(self.there, largest)}

    def _beside_link(self, tasks: Sequence[Task], moving: Task | None) -> tuple[Numbers, Numbers]:
        loss, speed = np.zeros(len(OPS)), np.ones(len(OPS))
        for task in tasks if moving is not None else ():
            op = _computed(task)
            if op is not None and moving is not None:
                work, link = delays(self.costs, task, moving)
                loss[OPS.index(op)], speed[OPS.index(op)] = 1 - 1 / work, 1 / link
        return loss, speed

    @cached_property
    def beside(self) -> Mapping[str, float]:
        """Chains beside a busy link, by the seconds that one of what comes costs while an operation runs.

        While an operation loses a share l of its speed and what comes keeps a share v of its own, a second of that
        takes 1 / v seconds, each of which delays by l: so chain + m x link is a bound for m = l / v, if operations
        that cost less hide as much of the link as they can."""
        costs = np.concatenate([np.minimum(1.0, loss / speed) for loss, speed in self.losses.values()])
        rounded, first = np.unique(np.round(costs, 3), return_index=True)
        slowed = any((speed < 1.0).any() for _, speed in self.losses.values())
        kept = [*costs[first[rounded > 0.0]][::-1][:_MOST_LOSSES], *([1.0] if slowed and rounded[-1] < 1.0 else [])]
        return {f"{CHAIN} beside {value:g}": float(value) for value in kept}


def _chained(
    groups: Sequence[slice], shares: Shares, seconds: tuple[Numbers, Numbers], crossing: tuple[float, float]
) -> Numbers:
    """Seconds (ways) from when what a block reads is on a side until what it makes is on one, as the next block's norm
    needs it. `seconds` (ways, operations) on host and accelerator; `crossing` to the latter and back."""
    (here, there), (into, back) = seconds, crossing
    at_host = at_accelerator = np.zeros(len(here))
    for part in groups:
        works, works_away = (whole[:, part] + shares.shared[:, part] > 0 for whole in (shares.host, shares.accelerator))
        end, crossed = _side_done(works, at_host, here[:, part], into)
        end_away, crossed_back = _side_done(works_away, at_accelerator, there[:, part], back)
        at_host, at_accelerator = np.maximum(end, crossed_back), np.maximum(end_away, crossed)
    return np.minimum(at_host, at_accelerator)


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


def _brought(task: Task) -> bool:
    """Whether a task brings or expands what lives elsewhere."""
    return task.kind in _MOVING and (".weights" in task.op or (task.op == "kv" and not _goes_home(task)))


def _goes_home(task: Task) -> bool:
    return task.kind == "transfer" and task.op == "kv" and ".new" in task.id


def _computed(task: Task) -> str | None:
    return task.op if task.layer is not None and task.kind not in _MOVING else None


def _weights_of(task: Task) -> str | None:
    """The operation for which weights come, or are expanded."""
    op, _, rest = task.op.partition(".")
    return op if task.layer is not None and task.kind in _MOVING and rest.startswith("weights") else None
