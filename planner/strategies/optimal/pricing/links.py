"""How the host's operations and what comes to several accelerators slow each other, whichever links are busy.

As beside one link (`interplay`): a second of a link counts for s x c, one of an operation for m, and at most one in all
for any operation and any transfers that may run at once. What two links leave of host memory is less than twice what
one does, so this is more than chains beside each of them say. Transfers have levels by their bytes: those of a level
ask for no less than the smallest of them, whose latency counts most, beside which operations lose least."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product

import numpy as np

from helmsman.lowering.graph import Task
from helmsman.planner.cost.model import CostModel, work_of
from helmsman.planner.strategies.optimal.pricing.task_kinds import weights_of
from helmsman.planner.strategies.optimal.program.ways import Chosen, Numbers
from helmsman.schemas.hardware import Device, Link
from helmsman.timing.interference import speed
from helmsman.timing.pools import Pools, Uses

_LEVELS = (1 / 3, 1 / 8, 1 / 24, 1 / 96)
"""The least bytes of every level, as a share of the largest matrix's."""

_PAIR = 2
"""The number of links above which only the first level counts."""

_NONE = -1
"""The level of a link that is not busy."""


@dataclass(frozen=True, eq=False)
class CountedSeconds:
    """How much seconds count where one of a link counts for a share: of an operation of the host by its place (`kept`),
    of anything that is not slowed (`idle`), and of transfers as a share of that by `level`."""

    kept: Numbers
    idle: float
    level: Numbers


@dataclass(frozen=True, eq=False)
class Links:
    """Links from the memory of a `host`, to each accelerator one, on which what is as large as the `largest` comes
    while operations that are `working` are done. `known`, `others`: what was asked before."""

    costs: CostModel
    host: Device
    links: tuple[Link, ...]
    largest: Task
    working: tuple[Task, ...]
    known: dict[float, CountedSeconds] = field(default_factory=dict, init=False, repr=False)
    others: dict[object, tuple[Numbers, Numbers]] = field(default_factory=dict, init=False, repr=False)

    def kept(self, task: Task, share: float) -> float:
        """How much every second of an operation counts where one of a link counts for a `share`; of one that was not
        known when transfers were counted what these leave."""
        counts = self.counts(share)
        if not self._hosts(task):
            return counts.idle
        place = self._places.get(work_of(task))
        return self._left(task, share, counts.level) if place is None else float(counts.kept[place])

    def _left(self, task: Task, share: float, level: Numbers) -> float:
        """How much every second of any operation may count."""
        counted = np.append(level, 0.0)[np.array(self._states)]
        work, moved = self._row(task)
        return float(min(1.0, ((1 - share * (moved * counted).sum(axis=1)) / work).min()))

    def _row(self, task: Task) -> tuple[Numbers, Numbers]:
        """The speeds of an operation (states), and of what comes (states, links)."""
        key = work_of(task)
        if key not in self.others:
            pairs = [self._beside(task, state) for state in self._states]
            self.others[key] = np.array([work for work, _ in pairs]), np.array([moved for _, moved in pairs])
        return self.others[key]

    def counted(self, transfer: Task, share: float) -> float:
        """Seconds of a transfer as they count where one of the largest counts in full, and that for a `share`."""
        level = next((level for level, least in enumerate(self._least) if transfer.bytes >= least), None)
        if level is None:
            return 0.0
        return float(self.costs.price(transfer).mid * self.counts(share).level[level])

    def together(self, task: Task) -> tuple[float, float]:
        """The shares of their speeds that an operation, and each link of what it has while the host rests, keep while
        all links are busy."""
        if not self._hosts(task):
            return 1.0, 1.0
        state, (work, moved) = self._states.index((0,) * len(self.links)), self._row(task)
        return float(work[state]), float(moved[state].sum() / self._moved[-1, state].sum())

    @property
    def share(self) -> float:
        """Which share of its speed a link keeps while all are busy and the host rests."""
        return float(self._moved[-1, self._states.index((0,) * len(self.links))].mean())

    @property
    def shares(self) -> Numbers:
        """For which shares bounds are tight: of a link beside which an operation counts in full, and where one link and
        all of them leave it as much."""
        large = self._up_to(0)
        work, links = self._work[:-1, large], self._moved[:-1, large].sum(axis=2)
        one, every = work.max(axis=1), work.min(axis=1)
        of_one, of_every = (links[np.arange(len(work)), at] for at in (work.argmax(axis=1), work.argmin(axis=1)))
        equal = (one - every) / np.maximum(of_every * one - of_one * every, np.finfo(float).tiny)
        tight = np.concatenate([((1 - work) / links).min(axis=1), equal[one > every]])
        return np.asarray(np.minimum(tight, 1 / self._moved[-1, large].sum(axis=1).max()))

    def counts(self, share: float) -> CountedSeconds:
        """Return what seconds count where one of a link counts for a `share`."""
        if share not in self.known:
            large = self._up_to(0)
            links = share * self._moved[:, large].sum(axis=2)
            kept = np.minimum(1.0, ((1 - links) / self._work[:, large]).min(axis=1))
            self.known[share] = CountedSeconds(kept[:-1], float(kept[-1]), self._levels(share, kept))
        return self.known[share]

    def _levels(self, share: float, kept: Numbers) -> Numbers:
        """Return what transfers count by level, when operations count what is `kept` of them."""
        result, level_of = np.ones(1), np.array(self._states)
        for level in range(1, len(self._least)):
            states = np.setdiff1d(self._up_to(level), self._up_to(level - 1))
            moved, levels = self._moved[:, states], level_of[states]
            own, counted = levels == level, np.append(result, [0.0, 0.0])[levels]
            left = 1 - kept[:, None] * self._work[:, states] - share * (moved * counted).sum(axis=2)
            most = left / (share * (moved * own).sum(axis=2)) if share else np.ones((1, 1))
            result = np.append(result, np.clip(most.min(), 0.0, 1.0))
        return result

    def _up_to(self, level: int) -> Chosen:
        """The states in which nothing that comes is smaller."""
        return np.flatnonzero([max(state) <= level for state in self._states])

    def _hosts(self, task: Task) -> bool:
        return task.resource == self.host.name

    @cached_property
    def _least(self) -> tuple[int, ...]:
        """The bytes of the smallest transfer of every level."""
        levels = _LEVELS if len(self.links) == _PAIR else _LEVELS[:1]
        return tuple(round(self.largest.bytes * level) for level in levels)

    @cached_property
    def _states(self) -> tuple[tuple[int, ...], ...]:
        """Return what may come at once: by link its level."""
        some = product(range(_NONE, len(self._least)), repeat=len(self.links))
        return tuple(state for state in some if max(state) > _NONE)

    @cached_property
    def _places(self) -> Mapping[object, int]:
        """Operations of the host that are equal work have one place."""
        return {key: place for place, key in enumerate(dict.fromkeys(map(work_of, filter(self._hosts, self.working))))}

    @property
    def _work(self) -> Numbers:
        """The share of their speed that operations keep (places, states); the last stands for what is not slowed."""
        return self._speeds[0]

    @property
    def _moved(self) -> Numbers:
        """The share of its speed that every link keeps (places, states, links), none where nothing comes."""
        return self._speeds[1]

    @cached_property
    def _speeds(self) -> tuple[Numbers, Numbers]:
        tasks = {work_of(task): task for task in self.working if self._hosts(task)}
        rows = [[self._beside(task, state) for state in self._states] for task in (*tasks.values(), None)]
        work, moved = (np.array([[pair[which] for pair in row] for row in rows]) for which in (0, 1))
        return work, moved

    def _beside(self, task: Task | None, state: Sequence[int]) -> tuple[float, list[float]]:
        """The speeds of an operation, and of what comes."""
        busy = {
            link.name: self._demands[link.name, level]
            for link, level in zip(self.links, state, strict=True)
            if level > _NONE
        }
        flows, own = list(busy.values()), 1.0
        if task is not None:
            slowed = self.costs.slowed()
            own = speed(slowed(task), busy.__contains__) if slowed else 1.0
            rate, uses = self._shared.asked(task, self.costs.price(task).mid)
            flows.append((rate * own, uses))
        speeds = self._shared.fair_speeds(flows)
        kept = dict(zip(busy, speeds, strict=False))
        return own * (speeds[-1] if task is not None else 1.0), [kept.get(link.name, 0.0) for link in self.links]

    @cached_property
    def _demands(self) -> Mapping[tuple[str, int], tuple[float, Uses]]:
        """By link and level, what the smallest transfer asks for."""
        return dict(self._demand_items())

    def _demand_items(self) -> Iterator[tuple[tuple[str, int], tuple[float, Uses]]]:
        for link, (level, least) in product(self.links, enumerate(self._least)):
            memories = (link.source_memory, link.target_memory)
            task = self.largest._replace(resource=link.name, memories=memories, bytes=least)
            yield (link.name, level), self._shared.asked(task, self.costs.price(task).mid)

    @cached_property
    def _shared(self) -> Pools:
        return Pools(self.costs.hardware)


def links_to(
    costs: CostModel, host: Device, away: Sequence[Device], there: Sequence[Task], working: Sequence[Task]
) -> Links | None:
    """The links by which weights come to several accelerators; None where they do not. `there`: the tasks of a block on
    one of them, to which all comes; `working`: operations beside them."""
    links = [costs.hardware.link(host.memory, device.memory) for device in away if device.memory != host.memory]
    joining, coming = tuple(link for link in links if link is not None), [task for task in there if weights_of(task)]
    if len(joining) < _PAIR or not coming:
        return None
    return Links(costs, host, joining, max(coming, key=lambda task: task.bytes), tuple(working))
