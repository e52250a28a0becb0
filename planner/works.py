"""The tasks of a graph by the work they do: blocks repeat each other, so a graph has few kinds of work."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property

from helmsman.lowering.graph import Task, TaskGraph


@dataclass(frozen=True)
class Works:
    """A graph with its kinds of work: tasks of one kind have the same lane, memories, bytes and price.

    `kinds`: the first task of each; `kind`: by task the number of its kind."""

    graph: TaskGraph
    kinds: tuple[Task, ...]
    kind: tuple[int, ...]

    @cached_property
    def lanes(self) -> dict[str, list[int]]:
        """The tasks of every lane, in the order in which it does them."""
        found: dict[str, list[int]] = {}
        for index, task in enumerate(self.graph.tasks):
            found.setdefault(task.resource, []).append(index)
        return found

    @cached_property
    def followers(self) -> list[list[int]]:
        """By task, those that wait for it."""
        found: list[list[int]] = [[] for _ in self.graph.tasks]
        for index, task in enumerate(self.graph.tasks):
            for dep in task.deps:
                found[dep].append(index)
        return found

    @cached_property
    def overlap(self) -> bool:
        """Whether any two tasks of different lanes may run at the same time: not if each depends on the one before."""
        return any(index - 1 not in task.deps for index, task in enumerate(self.graph.tasks) if index)


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
