"""The blocks that are lowered to price every way, and the lanes that they keep busy.

A few are enough: on the host, on the accelerator and shared by both, with everything coming from wherever it may."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np

from helmsman.lowering.graph import Task
from helmsman.planner.cost.model import CostModel
from helmsman.planner.strategies.optimal.configurations.block_ways import Division, Source
from helmsman.planner.strategies.optimal.pricing.busy_lanes import BusyLane
from helmsman.planner.strategies.optimal.pricing.chains import GROUPS, OPS
from helmsman.planner.strategies.optimal.pricing.interplay import Interplay
from helmsman.planner.strategies.optimal.pricing.task_kinds import brings, brought, computed, weights_of
from helmsman.planner.strategies.streaming.shared_rows import delays
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.hardware import Device

FoundT = TypeVar("FoundT")

CHAIN = "chain"
"""The lane in which operations of one batch follow each other."""

TURNING = ("chain back to the host", "chain back to the accelerator")
"""The chain with what brings the hidden state back to the side where the next block is entered."""

SIDES = ("host", "accelerator")

_MOST_LOSSES = 3
"""The number of different losses beside a busy link that are told apart at most."""


@dataclass(frozen=True)
class LoweredParts:
    """The tasks of a block in one phase: `here` on the `host`, `there` on the accelerator, to which all comes; where
    that is possible, `split` between both in every division; `others`: on the accelerator, with weights that come from
    elsewhere than host memory, or in 4-bit groups; `packed`: on the accelerator, with such a cache. `away`: all of the
    machine's accelerators."""

    costs: CostModel
    iteration: Iteration
    host: Device
    here: tuple[Task, ...]
    there: tuple[Task, ...]
    split: Mapping[Division, tuple[Task, ...]]
    others: Mapping[Source, tuple[Task, ...]] = field(default_factory=dict)
    packed: tuple[Task, ...] = ()
    away: tuple[Device, ...] = ()

    @cached_property
    def brought(self) -> Mapping[Source, tuple[Task, ...]]:
        """The tasks of a block on the accelerator, by where weights come from."""
        return {"host": self.there, **self.others}

    @cached_property
    def lanes(self) -> tuple[str, ...]:
        """Return what is counted, in order: the chain, queues, memories and links that several share, and the chain
        beside a busy link."""
        queues = dict.fromkeys(task.resource for task in (*self.here, *self._coming, *self.packed))
        pools = (f"pool {name}" for name in self.costs.pools.capacity)
        return (CHAIN, *queues, *pools, *TURNING, *self.beside)

    @cached_property
    def link(self) -> str | None:
        """The lane on which weights come."""
        return next((task.resource for task in self.there if weights_of(task) is not None), None)

    @cached_property
    def carriers(self) -> list[int]:
        """The columns of the links by which weights come, wherever from, and of what expands 4-bit groups."""
        coming = (task for task in (*self._coming, *self.packed) if brought(task) and task.layer is not None)
        links = dict.fromkeys(task.resource for task in coming if task.kind == "transfer")
        return [self.places[name] for name in (*links, *self.expanders)]

    def balanced(self, op: str) -> float:
        """The share of an operation with which the accelerator takes as long as the host for the rest, both at work."""
        pair = (next((task for task in tasks if computed(task) == op), None) for tasks in (self.here, self.there))
        mine, theirs = pair
        if mine is None or theirs is None:
            return 0.5
        slower = delays(self.costs, mine, (theirs,))[0]
        here, there = (self.price(task) * factor for task, factor in zip((mine, theirs), slower, strict=True))
        return here / (here + there) if here + there else 0.5

    def balanced_link(self, op: str, source: Source = "host") -> float:
        """The share of an operation whose rows come in the time in which the host does the rest, both at work."""
        here = next((task for task in self.here if computed(task) == op), None)
        moving = [task for task in self.brought[source] if weights_of(task) == op]
        if here is None or not moving:
            return self.balanced(op)
        largest = max(moving, key=self.price)
        work, link = delays(self.costs, here, (largest,))[0]
        done, come = self.price(here) * work, self.price(largest) * link
        return done / (done + come)

    @cached_property
    def interplays(self) -> Mapping[str, Interplay]:
        """Of operations and what comes on the link, or what expands 4-bit groups, by lane."""
        working, tasks = self._working, [task for graph in self._graphs.values() for task in graph]
        tasks += [*(task for of in self.others.values() for task in of), *self.packed]
        lanes = (*(() if self.link is None else (self.link,)), *self.expanders)
        return {lane: Interplay(self.costs, working, [task for task in tasks if brings(task, lane)]) for lane in lanes}

    @property
    def _working(self) -> list[Task]:
        """The operations of all graphs."""
        return [task for graph in self._graphs.values() for task in graph if computed(task) is not None]

    @cached_property
    def beside(self) -> Mapping[str, BusyLane]:
        """Chains beside a busy link, or beside what expands 4-bit groups, by what a second of that counts: what an
        operation that runs meanwhile loses for it, the largest of these, and all."""
        chains = (beside for lane, interplay in self.interplays.items() for beside in self._besides(lane, interplay))
        return {f"{CHAIN} beside {chain.share:g} of {chain.lane}": chain for chain in chains}

    def _besides(self, lane: str, interplay: Interplay) -> Iterator[BusyLane]:
        speeds = self.by_side(interplay.speeds, (1.0, 1.0))
        pairs = [*speeds["host", "here"], *speeds["accelerator", "there"]]
        costs = np.array([min(1.0, (1 - work) / link) for work, link in pairs])
        rounded, first = np.unique(np.round(costs, 3), return_index=True)
        slowed = any(link < 1.0 for _, link in pairs)
        largest = [*costs[first[rounded > 0.0]][::-1][:_MOST_LOSSES]]
        for value in (*largest, *([1.0] if slowed and rounded[-1] < 1.0 else [])):
            yield BusyLane(lane, float(value), interplay)

    @cached_property
    def expanders(self) -> tuple[str, ...]:
        """The lanes on which 4-bit groups are expanded while operations run."""
        computing = {task.resource for task in self.there if computed(task) is not None}
        lanes = dict.fromkeys(task.resource for task in self._expanding)
        return tuple(name for name in lanes if name not in computing)

    @property
    def _expanding(self) -> Iterator[Task]:
        return (task for task in (*self._coming, *self.packed) if task.kind == "decompress")

    @property
    def _coming(self) -> Iterator[Task]:
        return (task for tasks in self.brought.values() for task in tasks)

    @cached_property
    def _graphs(self) -> Mapping[str, tuple[Task, ...]]:
        split: Mapping[str, tuple[Task, ...]] = {str(division): tasks for division, tasks in self.split.items()}
        return {"here": self.here, "there": self.there, **split}

    @cached_property
    def groups(self) -> tuple[slice, ...]:
        """The groups of operations that the model has."""
        ends = np.cumsum([len(group) for group in GROUPS])
        there = {computed(task) for task in self.here}
        parts = ((group, slice(int(end) - len(group), int(end))) for group, end in zip(GROUPS, ends, strict=True))
        return tuple(part for group, part in parts if there & set(group))

    @cached_property
    def latencies(self) -> tuple[float, float]:
        """Of the links to the accelerator and back; none where both sides share a memory."""
        there = next(task.memories[-1] for task in self.there if computed(task) is not None)
        pair = (self.host.memory, there)
        links = (self.costs.hardware.link(*pair), self.costs.hardware.link(*pair[::-1]))
        into, back = (0.0 if link is None else link.latency.value for link in links)
        return into, back

    @cached_property
    def places(self) -> Mapping[str, int]:
        """The columns of lanes."""
        return {name: place for place, name in enumerate(self.lanes)}

    def by_side(self, of: Callable[[Task], FoundT], none: FoundT) -> dict[tuple[str, str], list[FoundT]]:
        """By side and graph, what is `of` every operation of one batch; `none` where a side does not have it."""
        result = {(side, name): [none] * len(OPS) for side in SIDES for name in self._graphs}
        for name, tasks in self._graphs.items():
            for task in tasks:
                op = computed(task)
                if op is not None and task.batch == 0:
                    result[self.side(task), name][OPS.index(op)] = of(task)
        return result

    def side(self, task: Task) -> str:
        """Who does a task."""
        return "host" if task.resource == self.host.name else "accelerator"

    def price(self, task: Task) -> float:
        """Seconds of a task by itself."""
        return self.costs.price(task).mid

    def seconds_of(self, tasks: Iterable[Task]) -> float:
        """Seconds of tasks one after the other."""
        return sum(self.price(task) for task in tasks)
