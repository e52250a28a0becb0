"""The tasks of a pass by the work they do: blocks repeat each other, so a pass has few kinds of work."""

from array import array
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, repeat

from helmsman.lowering.graph import RepeatingGraph, Task, TaskGraph, TaskRun, runs_of
from helmsman.schemas.hardware import lane_owner


@dataclass(frozen=True)
class Works:
    """A pass with its kinds of work: tasks of one kind have the same lane, memories, bytes and price.

    `kinds`: the first task of each; `counts`: the number of its tasks; `kind`: by task the number of its kind;
    `dep_counts`: for how many tasks it waits; `deps`: the numbers of these, those of the first task first."""

    kinds: tuple[Task, ...]
    counts: tuple[int, ...]
    kind: "array[int]"
    dep_counts: "array[int]"
    deps: "array[int]"

    @cached_property
    def lanes(self) -> tuple[str, ...]:
        """Return the lane of every task."""
        return tuple([self.kinds[kind].resource for kind in self.kind])

    @cached_property
    def awaited_lanes(self) -> dict[int, frozenset[str]]:
        """Return by task the other lanes that it waits for, where there are any."""
        others: dict[int, set[str]] = {}
        for task, dep in self._crossing():
            others.setdefault(task, set()).add(self.lanes[dep])
        return {task: frozenset(lanes) for task, lanes in others.items()}

    @cached_property
    def overlap(self) -> bool:
        """Whether any two tasks of different lanes may run at the same time: not if each depends on the one before."""
        follows = {task for task, dep in self._waits() if dep == task - 1}
        return len(follows) < len(self.kind) - 1

    @cached_property
    def submissions(self) -> int:
        """Return in how many pieces lanes are given the pass: every transfer, and operations of a device that follow
        each other until one waits for another lane or another lane for it."""
        awaited = {dep for _, dep in self._crossing()}
        last: dict[str, int] = {}
        count = 0
        for task, (lane, kind) in enumerate(zip(self.lanes, self.kind, strict=True)):
            before = last.get(lane)
            begins = before is None or before in awaited or task in self.awaited_lanes
            count += begins or self.kinds[kind].kind == "transfer"
            last[lane] = task
        return count

    @cached_property
    def ends_on(self) -> str:
        """Return the device whose operation is the last of the pass: the head's, wherever there is one; of transfers
        alone the link of the last."""
        last_first = (self.kinds[kind] for kind in reversed(self.kind))
        last = next((task for task in last_first if task.kind != "transfer"), self.kinds[self.kind[-1]])
        return lane_owner(last.resource)

    def by_task(self, values: Sequence[int]) -> "array[int]":
        """Return by task what kinds have."""
        return array("i", [values[kind] for kind in self.kind])

    def _waits(self) -> Iterator[tuple[int, int]]:
        """Yield the tasks that wait, each with every task that it waits for."""
        waiting = chain.from_iterable(map(repeat, range(len(self.kind)), self.dep_counts))
        return zip(waiting, self.deps, strict=True)

    def _crossing(self) -> Iterator[tuple[int, int]]:
        """Yield those that wait for a task of another lane."""
        return ((task, dep) for task, dep in self._waits() if self.lanes[task] != self.lanes[dep])


def alike(graph: TaskGraph | RepeatingGraph, key: Callable[[Task], Hashable]) -> Works:
    """Return the works of a pass whose tasks of one `key` are of one kind."""
    numbers: dict[Hashable, int] = {}
    kinds: list[Task] = []
    counts, kind = Counter[int](), array("i")
    runs = runs_of(graph)
    for run in runs:
        of_run = array("i")
        for task in run.tasks:
            number = numbers.setdefault(key(task), len(kinds))
            if number == len(kinds):
                kinds.append(task)
            of_run.append(number)
            counts[number] += run.times
        kind += of_run * run.times
    return Works(tuple(kinds), tuple([counts[number] for number in range(len(kinds))]), kind, *_deps(runs))


def apart(graph: TaskGraph) -> Works:
    """Return the works of a pass in which every task is a kind of its own, as where each has its own price."""
    count = len(graph.tasks)
    return Works(graph.tasks, (1,) * count, array("i", range(count)), *_deps(runs_of(graph)))


def _deps(runs: Sequence[TaskRun]) -> "tuple[array[int], array[int]]":
    """Return for how many tasks every task waits, and for which."""
    counts, deps = array("i"), array("q")
    for run in runs:
        counts += array("i", [len(task.deps) for task in run.tasks]) * run.times
        first = [dep for task in run.tasks for dep in task.deps]
        for number in range(run.times):
            later = number * len(run.tasks)
            deps.extend([dep + later for dep in first] if number else first)
    return counts, deps
