"""The tasks of a pass by the work they do: blocks repeat each other, so a pass has few kinds of work."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helmsman.lowering.graph import RepeatingGraph, Task, TaskGraph, TaskRun, runs_of
from helmsman.schemas.hardware import lane_owner

Ints = NDArray[np.int32]
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Works:
    """A pass with its kinds of work: tasks of one kind have the same lane, memories, bytes and price.

    `kinds`: the first task of each; `counts`: the number of its tasks; `kind`: by task the number of its kind;
    `dep_counts`: for how many tasks it waits; `deps`: the numbers of these, those of the first task first."""

    kinds: tuple[Task, ...]
    counts: tuple[int, ...]
    kind: Ints
    dep_counts: Ints
    deps: Numbers

    @cached_property
    def waiting(self) -> Numbers:
        """Return by dependency the task that waits."""
        return np.repeat(np.arange(len(self.kind)), self.dep_counts)

    @cached_property
    def lane(self) -> Ints:
        """Return by task the number of its lane among `lanes`."""
        numbers = {name: number for number, name in enumerate(self.lanes)}
        return self.by_task([numbers[task.resource] for task in self.kinds])

    @cached_property
    def lanes(self) -> tuple[str, ...]:
        """Return the lanes of its tasks."""
        return tuple(dict.fromkeys(task.resource for task in self.kinds))

    @cached_property
    def crosses(self) -> NDArray[np.bool_]:
        """Return by dependency whether it is on another lane than the task that waits."""
        differs: NDArray[np.bool_] = self.lane[self.deps] != self.lane[self.waiting]
        return differs

    @cached_property
    def overlap(self) -> bool:
        """Whether any two tasks of different lanes may run at the same time: not if each depends on the one before."""
        follows = np.zeros(len(self.kind), bool)
        follows[self.waiting[self.deps == self.waiting - 1]] = True
        return not follows[1:].all()

    @cached_property
    def submissions(self) -> int:
        """Return in how many pieces lanes are given the pass: every transfer, and operations of a device that follow
        each other until one waits for another lane or another lane for it."""
        waits, awaited = (np.zeros(len(self.kind), bool) for _ in range(2))
        waits[self.waiting[self.crosses]] = True
        awaited[self.deps[self.crosses]] = True
        begins = waits | self.by_task([task.kind == "transfer" for task in self.kinds]).astype(bool)
        for lane in range(len(self.lanes)):
            mine = np.flatnonzero(self.lane == lane)
            begins[mine[0]] = True
            begins[mine[1:]] |= awaited[mine[:-1]]
        return int(begins.sum())

    @cached_property
    def ends_on(self) -> str:
        """Return the device whose operation is the last of the pass: the head's, wherever there is one; of transfers
        alone the link of the last."""
        worked = np.flatnonzero(self.by_task([task.kind != "transfer" for task in self.kinds]))
        return lane_owner(self.kinds[self.kind[worked[-1] if len(worked) else -1]].resource)

    def by_task(self, values: Iterable[int]) -> Ints:
        """Return by task what kinds have."""
        of_kinds: Ints = np.fromiter(values, np.int32, len(self.kinds))[self.kind]
        return of_kinds


def alike(graph: TaskGraph | RepeatingGraph, key: Callable[[Task], Hashable]) -> Works:
    """Return the works of a pass whose tasks of one `key` are of one kind."""
    numbers: dict[Hashable, int] = {}
    kinds: list[Task] = []
    counts = Counter[int]()
    kind = list[Ints]()
    runs = runs_of(graph)
    for run in runs:
        of_run = []
        for task in run.tasks:
            number = numbers.setdefault(key(task), len(kinds))
            if number == len(kinds):
                kinds.append(task)
            of_run.append(number)
            counts[number] += run.times
        kind.append(np.tile(np.array(of_run, np.int32), run.times))
    return Works(
        tuple(kinds), tuple(counts[number] for number in range(len(kinds))), _joined(kind, np.int32), *_deps(runs)
    )


def apart(graph: TaskGraph) -> Works:
    """Return the works of a pass in which every task is a kind of its own, as where each has its own price."""
    count = len(graph.tasks)
    return Works(graph.tasks, (1,) * count, np.arange(count, dtype=np.int32), *_deps(runs_of(graph)))


def _deps(runs: Iterable[TaskRun]) -> tuple[Ints, Numbers]:
    """Return for how many tasks every task waits, and for which."""
    counts, deps = list[Ints](), list[Numbers]()
    for run in runs:
        counts.append(np.tile(np.array([len(task.deps) for task in run.tasks], np.int32), run.times))
        first = np.fromiter(chain.from_iterable(task.deps for task in run.tasks), np.int64)
        later = np.arange(run.times) * len(run.tasks)
        deps.append((first + later[:, None]).ravel())
    return _joined(counts, np.int32), _joined(deps, np.int64)


def _joined(parts: list[NDArray[Any]], kind: type[Any]) -> NDArray[Any]:
    return np.concatenate([np.empty(0, kind), *parts])
