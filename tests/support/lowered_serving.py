"""lower_serving(plan, iteration): the tasks of an online pass, in the order in which its sub-batches take turns.

Block i's attention stands between linear stages i and i + 1 (post-projection and FFN of block i, pre-projection of the
next); stage 0 begins a pass and stage L, of L blocks, ends it. Lanes are queues, so the order of the graph is the
schedule: nothing else is decided here, and whatever does not wait for each other overlaps."""

from collections.abc import Callable
from dataclasses import dataclass, field

from serving_iteration import Overlap, ServingIteration
from serving_tasks import ServingTasks

from helmsman.lowering.graph import TaskGraph
from helmsman.lowering.placement import Placed, known
from helmsman.schemas.cache_use import PLAIN
from helmsman.schemas.errors import BadInputError


def lower_serving(plan: Placed, iteration: ServingIteration) -> TaskGraph:
    """Return the task graph of an online pass over a plan whose caches are on an accelerator.

    Raises BadInputError where what operations read is not in their memory as it is used, a rule is missing, or two
    memories that must exchange data have no link."""
    if plan.schedule.reshape or plan.schedule.cache != PLAIN:
        message, remedy = "online passes attend to all of a cache, as it is kept", "leave reshape and cache out"
        raise BadInputError(message, field="schedule", remedy=remedy)
    tasks = ServingTasks(known(plan), iteration.index)
    _Order(iteration, tasks, plan.model.layers).go()
    return TaskGraph(iteration, tuple(tasks.out.take()))


@dataclass
class _Order:
    """Emits the tasks of a pass; `sent`: by sub-batch, what brings the latest queries, keys and values to the host."""

    iteration: ServingIteration
    tasks: ServingTasks
    layers: int
    sent: dict[int, int] = field(default_factory=dict)

    def go(self) -> None:
        """Swaps begin at once, beside all else; embedding and head serve all sub-batches."""
        iteration, count = self.iteration, len(self.iteration.batches)
        orders: dict[Overlap, Callable[[], None]] = {
            "none": self._in_turn,
            "two-sub-batches": self._two,
            "deferred": self._deferred,
        }
        self.tasks.swap(iteration.swap_out, iteration.swap_in + iteration.batches[0].returning)
        self.tasks.embed(
            sum(batch.tokens for batch in iteration.batches) + len(iteration.joining(0)), iteration.phase, count
        )
        orders[iteration.overlap]()
        outputs = iteration.outputs + len(iteration.joining(self.layers))
        if outputs:
            self.tasks.head(outputs, iteration.phase, count)

    def _in_turn(self) -> None:
        """One batch, whose attention on the host comes after that on the accelerator (Fig 3 of NEO)."""
        contexts = self.iteration.batches[0].cpu
        for layer in range(self.layers):
            self._stage(layer, 0)
            self._attend(layer)
            if contexts:
                after = self.tasks.made(0, "append") + self.tasks.made(0, "attention")
                self.tasks.attend_at_host(layer, 0, contexts, self.tasks.send(layer, 0, len(contexts), after))
        self._stage(self.layers, 0)

    def _two(self) -> None:
        """Fig 5 of NEO: while one sub-batch is in its linear stage, the host attends to the other."""
        for number in range(self.layers + 1):
            if number > 0:
                self._at_host(number - 1, 1)
            for batch in (0, 1):
                self._stage(number, batch)
                self._send(number, batch)
            self._attend(number)
            self._at_host(number, 0)

    def _deferred(self) -> None:
        """Fig 4 of APEX: a cohort joins one linear stage, and the pass does not wait for its attention. The host works
        through the tasks of several cohorts as they come."""
        for number in range(self.layers + 1):
            self._stage(number, 0)
            joining = self.iteration.joining(number)
            if joining and number < self.layers:
                sent = self.tasks.send(number, 1, len(joining), self.tasks.made(0, "append"))
                self.tasks.attend_at_host(number, 1, joining, sent)
            self._attend(number)

    def _stage(self, number: int, batch: int) -> None:
        """A linear stage of a sub-batch, with those who join its last one."""
        members, last = self.iteration.batches[batch], batch == len(self.iteration.batches) - 1
        tokens = members.tokens + (len(self.iteration.joining(number)) if last else 0)
        if tokens:
            self.tasks.stage(number, batch, tokens, members.phase)
        if members.leaving and number < self.layers:
            self.tasks.leave(number, members.leaving)

    def _attend(self, number: int) -> None:
        members = self.iteration.batches[0]
        if number < self.layers:
            self.tasks.attend(number, members.prompts, members.gpu)

    def _on_host(self, layer: int, batch: int) -> tuple[int, ...]:
        """Return the contexts of a sub-batch that the host attends to, with those who have joined it."""
        joined = self.iteration.joining(layer) if batch else ()
        return (*self.iteration.batches[batch].cpu, *joined) if layer < self.layers else ()

    def _send(self, layer: int, batch: int) -> None:
        requests = len(self._on_host(layer, batch))
        if requests:
            self.sent[batch] = self.tasks.send(layer, batch, requests, self.tasks.made(batch, "append"))

    def _at_host(self, layer: int, batch: int) -> None:
        contexts = self._on_host(layer, batch)
        if contexts:
            self.tasks.attend_at_host(layer, batch, contexts, self.sent[batch])
