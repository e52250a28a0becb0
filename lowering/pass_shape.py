"""Passes of one shape: what plans that agree in their rules do for other numbers of tokens are the same tasks of other
sizes. Their tasks are made once, and the kinds of work among them sized for every pass."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from helmsman.lowering.graph import PLACE, RepeatingGraph, Task, TaskRun
from helmsman.lowering.lower import lower_runs
from helmsman.lowering.paging import windows
from helmsman.lowering.placement import FactT, KnownPlan
from helmsman.lowering.task_order import TaskOrder, order_of
from helmsman.lowering.task_sizes import Sizes, TaskSizes, before
from helmsman.scheduler.iteration import Iteration

_KEPT = itemgetter(*(at for at, name in enumerate(Task._fields[:PLACE]) if name not in Sizes._fields))
"""The fields that a price depends on, without those that the pass changes."""

_TOKENS, _FORMAT, _SEQUENCES = (Task._fields.index(name) for name in ("tokens", "format", "sequences"))
"""Where the sizes of a task are among its fields: four of them before its format, the others from its sequences on."""

_MOST_PASSES = 16
"""The number of passes of a shape that are remembered, some ten kilobytes each: lengths of prompts in a study."""


class PassShape:
    """The tasks of a pass, and what of them is the same in others of its shape.

    `kinds`: the first task of each kind of work, in order; kinds are told apart by what they do where, so that those of
    equal size may do equal work; `order`: which tasks are of them."""

    def __init__(self, plan: KnownPlan, iteration: Iteration) -> None:
        self.graph = graph = lower_runs(plan, iteration)
        numbers: dict[Hashable, int] = {}
        kinds: list[Task] = []
        self.numbers = list[list[int]]()
        for run in graph.runs:
            of_run = list[int]()
            for task in run.tasks:
                number = numbers.setdefault(_place(plan, task), len(kinds))
                if number == len(kinds):
                    kinds.append(task)
                of_run.append(number)
            self.numbers.append(of_run)
        self.kinds = tuple(kinds)
        self.order = order_of(graph.runs, self.numbers, kinds)
        self._merged: dict[tuple[int, ...], TaskOrder] = {}
        self._passes = {iteration: SizedPass(iteration, self, self.kinds)}

    def sized(self, plan: KnownPlan, iteration: Iteration) -> "SizedPass":
        """Return the pass of a `plan` of this shape in its sizes. Some are remembered: an engine asks for one to see
        what launches leave, and again for its figures; a study asks for the same on machines that are built alike."""
        if iteration not in self._passes:
            if len(self._passes) >= _MOST_PASSES:
                del self._passes[next(iter(self._passes))]
            sizes = TaskSizes(plan, iteration)
            kinds = tuple([_sized(task, sizes.of(task)) for task in self.kinds])
            self._passes[iteration] = SizedPass(iteration, self, kinds)
        return self._passes[iteration]

    def merged(self, kinds: tuple[int, ...]) -> TaskOrder:
        """Return the order where some kinds do equal work (`TaskOrder.merged`)."""
        if kinds not in self._merged:
            distinct = len(set(kinds)) == len(kinds)
            self._merged[kinds] = self.order if distinct else self.order.merged(kinds)
        return self._merged[kinds]


@dataclass(frozen=True)
class SizedPass:
    """A pass of a shape; `kinds`: those of the shape in its sizes; `facts`: see `fact`."""

    iteration: Iteration
    shape: PassShape
    kinds: tuple[Task, ...]
    facts: dict[Hashable, Any] = field(default_factory=dict, compare=False, repr=False)

    def fact(self, about: Hashable, work_out: Callable[[], FactT]) -> FactT:
        """Return what is known `about` this pass, worked out the first time: nothing that depends on a machine's
        figures."""
        if about not in self.facts:
            self.facts[about] = work_out()
        fact: FactT = self.facts[about]
        return fact

    @property
    def graph(self) -> RepeatingGraph:
        """Return all tasks, made when they are asked for: they are many times as large as the kinds."""
        if self.iteration == self.shape.graph.iteration:
            return self.shape.graph
        pairs = zip(self.shape.graph.runs, self.shape.numbers, strict=True)
        runs = tuple(TaskRun(self._tasks(run, numbers), run.times, run.layers) for run, numbers in pairs)
        return RepeatingGraph(self.iteration, runs)

    def _tasks(self, run: TaskRun, numbers: Sequence[int]) -> tuple[Task, ...]:
        return tuple(
            [_sized(task, _sizes(self.kinds[number])) for task, number in zip(run.tasks, numbers, strict=True)]
        )


def pass_of(plan: KnownPlan, iteration: Iteration) -> SizedPass | RepeatingGraph:
    """Return a pass of a plan: in the shape of a pass that was asked for before, where that plan's shape is shared and
    sizes are all that differs; what pages or known tokens do depends on their number.

    Raises what `lower` raises."""
    if not plan.shared or plan.workload.prefix_tokens or windows(plan):
        return lower_runs(plan, iteration)
    about = "pass", iteration.index, iteration.phase, iteration.batches, iteration.past > 0
    return plan.fact(about, lambda: PassShape(plan, iteration)).sized(plan, iteration)


def _sized(task: Task, sizes: Sizes) -> Task:
    """Return the task in other sizes."""
    middle, place = task[_FORMAT:_SEQUENCES], task[PLACE:]
    amounts, own = sizes[: _FORMAT - _TOKENS], (sizes.sequences, task.columns, sizes.per_token, task.looks_up)
    return Task._make((*task[:_TOKENS], *amounts, *middle, *own, *place))


def _sizes(task: Task) -> Sizes:
    return Sizes(task.tokens, task.bytes, task.activation_bytes, task.flops, task.sequences, task.per_token)


def _place(plan: KnownPlan, task: Task) -> Hashable:
    """Return what a task does and where, by which its size is known in every pass of the shape."""
    first, made = (
        None if layer is None else plan.first_alike[layer] for layer in (task.layer, before(plan, task.layer))
    )
    maker = made if task.payload == "activation" else None
    whose = task.operation, task.payload, task.rows, task.piece, task.home
    return (*_KEPT(task), task.layer is None, first, maker, *whose)
