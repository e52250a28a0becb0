"""The tasks of a graph by the work they do: blocks repeat each other, so a graph has few kinds of work."""

from array import array
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

from helmsman.lowering.graph import Task, TaskGraph


@dataclass(frozen=True)
class Works:
    """A graph with its kinds of work: tasks of one kind have the same lane, memories, bytes and price.

    `kinds`: the first task of each; `kind`: by task the number of its kind."""

    graph: TaskGraph
    kinds: tuple[Task, ...]
    kind: tuple[int, ...]

    @cached_property
    def overlap(self) -> bool:
        """Whether any two tasks of different lanes may run at the same time: not if each depends on the one before."""
        return any(index - 1 not in task.deps for index, task in enumerate(self.graph.tasks) if index)

    def numbered(self, numbers: Sequence[int]) -> "array[int]":
        """Return the number of every task's kind, where kinds have these `numbers`."""
        return array("i", [numbers[kind] for kind in self.kind])

    @cached_property
    def dep_counts(self) -> "array[int]":
        """For how many tasks every task waits."""
        return array("i", [len(task.deps) for task in self.graph.tasks])

    @cached_property
    def deps(self) -> "array[int]":
        """Return the tasks that they wait for, those of the first task first."""
        return array("q", chain.from_iterable(task.deps for task in self.graph.tasks))


def alike(graph: TaskGraph, key: Callable[[Task], Hashable]) -> Works:
    """Tasks of one `key` are of one kind."""
    numbers: dict[Hashable, int] = {}
    kinds: list[Task] = []
    kind: list[int] = []
    for task in graph.tasks:
        number = numbers.setdefault(key(task), len(kinds))
        if number == len(kinds):
            kinds.append(task)
        kind.append(number)
    return Works(graph, tuple(kinds), tuple(kind))


def apart(graph: TaskGraph) -> Works:
    """Every task is a kind of its own, as where each has its own price."""
    return Works(graph, graph.tasks, tuple(range(len(graph.tasks))))
