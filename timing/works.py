"""The tasks of a pass by the work they do: blocks repeat each other, so a pass has few kinds of work."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from helmsman.lowering.graph import RepeatingGraph, Task, TaskGraph, runs_of
from helmsman.lowering.pass_shape import SizedPass
from helmsman.lowering.task_order import TaskOrder, order_of


@dataclass(frozen=True)
class Works:
    """A pass with its kinds of work: tasks of one kind have the same lane, memories, bytes and price.

    `kinds`: the first task of each."""

    kinds: tuple[Task, ...]
    order: TaskOrder

    @property
    def counts(self) -> tuple[int, ...]:
        """Return by kind the number of its tasks."""
        return self.order.counts

    @property
    def submissions(self) -> int:
        """Return in how many pieces lanes are given the pass."""
        return self.order.submissions

    @property
    def ends_on(self) -> str:
        """Return the device whose operation is the last of the pass."""
        return self.order.ends_on


def alike(graph: TaskGraph | RepeatingGraph | SizedPass, key: Callable[[Task], Hashable]) -> Works:
    """Return the works of a pass whose tasks of one `key` are of one kind."""
    if isinstance(graph, SizedPass):
        return _sized(graph, key)
    numbers: dict[Hashable, int] = {}
    kinds: list[Task] = []
    runs, by_run = runs_of(graph), list[list[int]]()
    for run in runs:
        of_run = list[int]()
        for task in run.tasks:
            number = numbers.setdefault(key(task), len(kinds))
            if number == len(kinds):
                kinds.append(task)
            of_run.append(number)
        by_run.append(of_run)
    return Works(tuple(kinds), order_of(runs, by_run, kinds))


def apart(graph: TaskGraph) -> Works:
    """Return the works of a pass in which every task is a kind of its own, as where each has its own price."""
    return Works(graph.tasks, order_of(runs_of(graph), [range(len(graph.tasks))], graph.tasks))


def _sized(sized: SizedPass, key: Callable[[Task], Hashable]) -> Works:
    """Return the works of a pass whose order is known: kinds that are told apart by their places may do equal work."""
    numbers: dict[Hashable, int] = {}
    kinds: list[Task] = []
    merged = list[int]()
    for task in sized.kinds:
        number = numbers.setdefault(key(task), len(kinds))
        if number == len(kinds):
            kinds.append(task)
        merged.append(number)
    return Works(tuple(kinds), sized.shape.merged(tuple(merged)))
