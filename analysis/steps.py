"""Task graphs and prices of all decode steps from two that are lowered: only KV and attention grow with the step."""

from dataclasses import dataclass
from functools import cached_property

from helmsman.lowering.graph import Task, TaskGraph
from helmsman.lowering.lower import lower
from helmsman.lowering.paging import Passes, passes_of, windows
from helmsman.lowering.placement import Placed
from helmsman.planner.cost.estimate import Estimate
from helmsman.planner.cost.model import CostModel
from helmsman.schemas.workload import Workload


@dataclass(frozen=True)
class DecodeSteps:
    """Decode steps of `plan` under `workload`: the same tasks, whose bytes and FLOPs are linear in the step.

    Lowering does not depend on the step otherwise, and its byte counts are products: the result is exact. Where caches
    have windows, pages come and go: every step is lowered."""

    plan: Placed
    workload: Workload
    costs: CostModel

    def graph(self, step: int) -> TaskGraph:
        """Return what `lower` gives for `step` of every batch that a pass advances, for step 1 or later."""
        if windows(self.plan):
            return lower(self.plan, self._passes.step(step))
        grown = zip(self._first.tasks, self._growth, strict=True)
        return TaskGraph(self._passes.step(step), tuple(_grow(task, more, step) for task, more in grown))

    def estimates(self, graph: TaskGraph) -> dict[str, Estimate]:
        """Return the price of each task of a `graph` made here, by id."""
        if windows(self.plan):
            return {task.id: self.costs.price(task) for task in graph.tasks}
        known = zip(graph.tasks, self._constant, strict=True)
        return {task.id: constant or self.costs.price(task) for task, constant in known}

    @cached_property
    def _passes(self) -> Passes:
        return passes_of(self.plan, self.workload)

    @cached_property
    def _first(self) -> TaskGraph:
        return lower(self.plan, self._passes.step(1))

    @cached_property
    def _growth(self) -> list[tuple[int, int]]:
        """Return bytes and FLOPs that each task gains from one step to the next."""
        pairs = zip(self._first.tasks, lower(self.plan, self._passes.step(2)).tasks, strict=True)
        return [(second.bytes - first.bytes, second.flops - first.flops) for first, second in pairs]

    @cached_property
    def _constant(self) -> list[Estimate | None]:
        """Return the prices of the tasks that do not grow."""
        tasks = zip(self._first.tasks, self._growth, strict=True)
        return [None if any(growth) else self.costs.price(task) for task, growth in tasks]


def _grow(task: Task, growth: tuple[int, int], step: int) -> Task:
    """`task` of step 1 as it is in `step`."""
    more, flops = (step - 1) * growth[0], (step - 1) * growth[1]
    return task._replace(step=step, bytes=task.bytes + more, flops=task.flops + flops)
