"""The sizes of a pass's tasks, from the operations that they are parts of, or move something for."""

from typing import NamedTuple

from helmsman.lowering.activations import TOKEN_BYTES
from helmsman.lowering.bodies.attention import NEW_KV
from helmsman.lowering.dataflow import HIDDEN, TOKEN
from helmsman.lowering.graph import Task
from helmsman.lowering.layer_cache import owner
from helmsman.lowering.parts import Coming, DividedOperation, OperationPart
from helmsman.lowering.placement import KnownPlan
from helmsman.lowering.turns import distinct_operations
from helmsman.scheduler.iteration import Iteration


class Sizes(NamedTuple):
    """The fields of a task that its pass changes."""

    tokens: int
    bytes: int
    activation_bytes: int
    flops: int
    sequences: int
    per_token: float


class TaskSizes:
    """The sizes of tasks in one pass of a plan, without those of pages and of known tokens."""

    def __init__(self, plan: KnownPlan, iteration: Iteration) -> None:
        self.plan, self.iteration = plan, iteration
        self._works: dict[tuple[int | None, str], DividedOperation] = {}
        self._makers: dict[tuple[int | None, str], DividedOperation] = {}
        for first, work in distinct_operations(plan, iteration):
            self._works[first, work.op.name] = work
            self._makers.update({(first, name): work for name in work.names})

    def of(self, task: Task) -> Sizes:
        """Return the sizes of a task that the plan has in every pass of this shape. Raises LookupError for others."""
        if task.payload is None:
            work = self._works[self._first(task.layer), task.operation]
            part = next(part for part in work.parts if part.rows == task.rows and part.device == task.resource)
            amounts = part.size, part.activation_bytes, part.flops
            return Sizes(part.tokens, *amounts, part.sequences, part.per_token)
        return Sizes(0, self._moved(task), 0, 0, 1, 1.0)

    def _moved(self, task: Task) -> int:
        """Return the bytes of a move."""
        if task.payload == "activation":
            return self._activation(task)
        if task.payload == "new cache entries":
            appended = self._works[self._first(task.layer), "append"].appended
            return next(size for cargo, _, _, size in appended if cargo.piece == task.piece)
        part = self._reader(task)
        if task.kind == "reshape":
            return part.turned or 0
        coming = next(coming for coming in self._coming(part, task) if coming.cargo.piece == task.piece).resident
        if task.kind == "decompress":
            return coming.size + coming.used
        share = next(share for home, share in coming.copies if task.home in (None, home))
        size = round(coming.size * share)
        return 2 * size if task.kind == "pin" else size

    def _reader(self, task: Task) -> OperationPart:
        """Return the part of an operation for which weights or caches come."""
        parts = self._works[self._first(task.layer), task.operation].parts
        return next(part for part in parts if part.rows == task.rows)

    def _coming(self, part: OperationPart, task: Task) -> tuple[Coming, ...]:
        return (part.weights or part.entering) if task.payload == "weights" else part.cached

    def _activation(self, task: Task) -> int:
        """Return the bytes of an output, or a part of one, on its way."""
        if task.operation == TOKEN:
            return TOKEN_BYTES * self.iteration.chosen
        work, size = self._maker(task)
        whole = work.op.adds_up or (task.piece is None and len(work.parts) == 1)
        share = 1.0 if whole else work.parts[task.piece or 0].share
        return round(size * share)

    def _maker(self, task: Task) -> tuple[DividedOperation, int]:
        """Return the operation that made an output, and the bytes of all of it."""
        if task.operation == NEW_KV:
            home = None if task.layer is None else owner(self.plan.model, task.layer)
            append = self._works[self._first(home), "append"]
            return append, append.op.kv_write
        if task.operation != HIDDEN:
            place = self._first(task.layer), task.operation
            work = self._makers[place if place in self._makers else (None, task.operation)]
            return work, work.op.out_bytes
        work = self._makers[self._first(before(self.plan, task.layer)), "input"]
        return work, work.op.out_bytes

    def _first(self, layer: int | None) -> int | None:
        return None if layer is None else self.plan.first_alike[layer]


def before(plan: KnownPlan, layer: int | None) -> int | None:
    """Return the block whose output goes into block `layer`, or what follows the last (None); None: the table's."""
    if layer is None:
        return plan.model.layers - 1
    return None if layer == 0 else layer - 1
