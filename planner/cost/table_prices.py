"""Prices from a measured operation table, scaled from the work it was measured on to the work of a task (PARK-46).

A table of another batch is carried by what rooflines say of both: a product or attention keeps the share of its
roofline that was measured, everything else keeps what it took beyond its roofline, which is fixed cost. Between
tables of two batches figures are interpolated, as between contexts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal

from helmsman.lowering.graph import CACHED, Task
from helmsman.lowering.operation import DIVIDED, Formats, Operation
from helmsman.lowering.placement import Placed
from helmsman.lowering.rules import kv_rule, residence
from helmsman.lowering.tensors import block_tensors
from helmsman.lowering.variants import attending, cached_elements, varied_ops
from helmsman.planner.cost.expansion import busy_link
from helmsman.planner.cost.stripes import together
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.figures import Figure
from helmsman.schemas.formats import Format, StoredFormat, same_size, size_of
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.model import Model
from helmsman.schemas.operation_table import COLUMNS, BlockShape, OperationRow, OperationTable
from helmsman.schemas.storage import STORAGE

Column = Literal["host", "accelerator", "transfer", "transfer_q4", "decompress", "storage"]

INTERPOLATED = "interpolated"
"""The source of a price that was measured at other contexts or batches."""

FAR = 4.0
"""The multiple of a table's context from which attention is no longer scaled: rooflines take over. What is carried to
another batch has a spread that grows as far."""

_GROWING = frozenset({"scores", "softmax", "wv", "attention"})
"""The rows that depend on the context."""

FIXED = ("softmax", "append", "norm")
"""Kinds whose price beyond their roofline is a fixed cost: they move little."""


@dataclass(frozen=True, slots=True)
class TablePrice:
    """Measured seconds of which a task takes `scale`; `source`: what they are where they were not measured as asked;
    `beside`: the link that was moving data meanwhile; `reference`: the task at the table's batch, where that is another
    one."""

    figures: tuple[Figure, ...]
    scale: float
    source: str | None = None
    beside: str | None = None
    reference: Task | None = None


@dataclass(frozen=True, slots=True)
class TableCell:
    """The rows and the column that a task's price stands in; it does `scale` times the work of those rows."""

    ops: tuple[str, ...]
    column: Column
    scale: float


@dataclass(frozen=True)
class TablePrices:
    """A table, and how much work each of its rows stands for.

    `weights`: elements of an operation's tensors; `ops`: the operations at the table's context and batch; `own`: the
    same at the question's batch, empty where it is the table's; `asked`, `batch`: context and batch of the question;
    `interpolated`: from two tables."""

    table: OperationTable
    hardware: Hardware
    weights: dict[str, int]
    ops: Mapping[str, Operation]
    own: Mapping[str, Operation]
    cache_elements: int
    asked: int
    batch: int
    interpolated: bool = False

    def measured(self, task: Task) -> TablePrice | None:
        """What the table says about `task`; None when it was not measured (prompts, ends, hidden states)."""
        place = self.place(task)
        if place is None:
            return None
        figures = [_figure(self.table.row(op), place.column) for op in place.ops]
        complete = tuple(figure for figure in figures if figure is not None)
        if len(complete) < len(figures):
            return None
        if self.own and place.column in ("host", "accelerator"):
            return self._carried(task, place, complete)
        if not set(place.ops) <= _GROWING or self._off == 1.0:
            return TablePrice(complete, place.scale, INTERPOLATED if self.interpolated else None, self._beside)
        if self._off > FAR:
            return None
        wider = tuple(_wider(figure, self._off) for figure in complete)
        return TablePrice(wider, place.scale, INTERPOLATED, self._beside)

    def _carried(self, task: Task, place: TableCell, figures: tuple[Figure, ...]) -> TablePrice | None:
        """Figures of the table's batch, and the part of them that is a task's, as the work it would be there."""
        there, here = (ops.get(task.op) for ops in (self.ops, self.own))
        if there is None or here is None or (set(place.ops) <= _GROWING and self._off > FAR):
            return None
        share = _share_of(task, here)
        reference = task._replace(
            tokens=there.tokens,
            sequences=there.sequences,
            bytes=round(share * there.memory_bytes),
            activation_bytes=round(share * there.activation_bytes),
            flops=round(share * there.flops),
        )
        off = max(self.batch / self.table.batch, self.table.batch / self.batch)
        wider = tuple(_wider(figure, min(off * self._off, FAR)) for figure in figures)
        return TablePrice(wider, share, INTERPOLATED, self._beside, reference)

    @cached_property
    def _beside(self) -> str | None:
        return busy_link(self.table, self.hardware)

    @property
    def _off(self) -> float:
        """How many times the context of the question is larger, or smaller, than that of the table."""
        return max(self.asked / self.table.context, self.table.context / self.asked)

    def place(self, task: Task) -> TableCell | None:
        """Where a table has the price of `task`; None when it has no such place."""
        if task.phase != "decode" or task.layer is None:
            return None
        if task.kind == "transfer":
            return self._transfer(task)
        if task.kind == "decompress":
            return self._decompress(task)
        return self._compute(task)

    def _compute(self, task: Task) -> TableCell | None:
        columns: dict[str, Column] = {self.table.host: "host", self.table.accelerator: "accelerator"}
        column = columns.get(task.resource)
        if column is None or task.kind in ("pin", "reshape"):
            return None
        ops = self._fused if task.kind == "attention" else (task.op,)
        amount, of = task.bytes, sum(self.ops[op].memory_bytes for op in ops if op in self.ops)
        if task.kind in FIXED:
            amount, of = task.activation_bytes, self.ops[task.op].activation_bytes if task.op in self.ops else 0
        return TableCell(ops, column, amount / of if of else 1.0)

    @property
    def _fused(self) -> tuple[str, ...]:
        """The rows of undivided attention."""
        return ("attention",) if self.table.row("attention") else DIVIDED

    def _transfer(self, task: Task) -> TableCell | None:
        source, target = task.memories
        if target != self.hardware.device(self.table.accelerator).memory:
            return None
        stored = self.hardware.memory(source).kind == STORAGE
        groups = task.format == "q4" != self.table.format
        column: Column = "storage" if stored else "transfer_q4" if groups else "transfer"
        ops, elements = self._content(task)
        if not elements:
            return None
        whole = size_of(elements, task.format) * (self._stripes.get(source, 1.0) if stored else 1.0)
        return TableCell(ops, column, task.bytes / whole / self._reached(task))

    def _reached(self, task: Task) -> float:
        """The share of its link's rate that a transfer reaches: columns are of page-locked memory."""
        link = self.hardware.link(*task.memories)
        share = None if link is None else link.reached(task.path)
        return 1.0 if share is None else share.value

    @cached_property
    def _stripes(self) -> dict[str, float]:
        """The column for storage is of all devices together: the share of a weight that each reads in that time."""
        return together(self.hardware, self.hardware.device(self.table.accelerator).memory)

    def _decompress(self, task: Task) -> TableCell | None:
        """None for caches of another batch: `planner.cost.expansion` knows them."""
        ops, elements = self._content(task)
        if self.own and task.payload != "weights":
            return None
        of = size_of(elements, "q4") + size_of(elements, self.table.format)
        return TableCell(ops, "decompress", task.bytes / of) if elements else None

    def _content(self, task: Task) -> tuple[tuple[str, ...], int]:
        """The rows to which what a task moves belongs, and the elements those rows moved."""
        op = task.operation
        if task.payload == "weights":
            return (op,), self.weights.get(op, 0)
        if task.payload not in CACHED:
            return (), 0
        if op == "attention" and not self.table.row(op):
            return ("scores", "wv"), 2 * self.cache_elements
        return (op,), (2 if op == "attention" else 1) * self.cache_elements


def _figure(row: OperationRow | None, column: str) -> Figure | None:
    figure: Figure | None = getattr(row, column) if row else None
    return figure


def _share_of(task: Task, whole: Operation) -> float:
    """The part of an operation that a task does."""
    if task.kind in FIXED:
        return task.activation_bytes / whole.activation_bytes if whole.activation_bytes else 1.0
    return task.bytes / whole.memory_bytes if whole.memory_bytes else 1.0


def table_prices(placed: Placed) -> TablePrices | None:
    """Prices from the tables of the hardware that were measured on such a layer, if there are any.

    Of the question's batch and of the context of the mean decode step: measured so, between the nearest tables below
    and above, or by the nearest one."""
    behind = tables_behind(placed)
    if not behind:
        return None
    asked, batch = _asked(placed)
    batches = sorted({table.batch for table in behind})
    (table, mixed), *other = (_at_context([t for t in behind if t.batch == batch], asked) for batch in batches)
    if other:
        table, mixed = between(table, other[0][0], batch, "batch"), True
    priced = prices(table, placed.hardware, placed.model, placed.activations, asked, batch)
    return replace(priced, interpolated=mixed)


def tables_behind(placed: Placed) -> tuple[OperationTable, ...]:
    """The tables of the hardware between which `table_prices` interpolates: at most two batches, at most two contexts
    of each."""
    asked, batch = _asked(placed)
    fitting = [table for table in placed.hardware.tables if _fits(table, placed)]
    chosen: list[OperationTable] = []
    for sequences in _around(sorted({table.batch for table in fitting}), batch):
        of_batch = {table.context: table for table in reversed(fitting) if table.batch == sequences}
        chosen += [of_batch[context] for context in _around(sorted(of_batch), asked)]
    return tuple(chosen)


def _asked(placed: Placed) -> tuple[int, int]:
    """Context of the mean decode step, and batch."""
    return min(placed.workload.mean_context, placed.workload.context), placed.workload.batch


def _around(known: Sequence[int], asked: int) -> tuple[int, ...]:
    """The nearest known number below and the nearest above, or the one that is asked, or on whose side all are."""
    if asked in known:
        return (asked,)
    below, above = [number for number in known if number < asked], [number for number in known if number > asked]
    return (*below[-1:], *above[:1])


def _at_context(tables: Sequence[OperationTable], asked: int) -> tuple[OperationTable, bool]:
    """The table at context `asked` of one of a batch, or of two around it, and whether it is interpolated."""
    low, *rest = tables
    return (between(low, rest[0], asked), True) if rest else (low, False)


def _fits(table: OperationTable, placed: Placed) -> bool:
    """Whether `table` is of such a layer, formats and use of the cache."""
    return (
        placed.model.is_dense
        and table.shape == shape_of(placed.model)
        and table.cache == placed.schedule.cache
        and same_size(table.format, _used_format(placed))
        and same_size(table.kv_format, kv_rule(placed, 0).used)
    )


def between(
    low: OperationTable, high: OperationTable, asked: int, over: Literal["context", "batch"] = "context"
) -> OperationTable:
    """The table at `asked` context or batch of two around it: linear, figure by figure, where both have one.

    The host's threads are those of the nearer table; sources are those of `low`."""
    first, last = getattr(low, over), getattr(high, over)
    weight = (asked - first) / (last - first)
    rows = []
    for row in low.rows:
        other = high.row(row.op)
        figures = {name: _mixed(_figure(row, name), _figure(other, name), weight) for name in COLUMNS}
        rows.append(row.model_copy(update=figures))
    threads = (low if weight <= 0.5 else high).threads
    return low.model_copy(update={over: asked, "rows": tuple(rows), "threads": threads})


def _mixed(low: Figure | None, high: Figure | None, weight: float) -> Figure | None:
    if low is None or high is None:
        return None
    mixed = {end: getattr(low, end) * (1 - weight) + getattr(high, end) * weight for end in ("value", "p10", "p90")}
    return low.model_copy(update=mixed)


def _wider(figure: Figure, off: float) -> Figure:
    """A figure that is scaled from another context: the spread grows as the square root of the ratio."""
    return figure.model_copy(update={"p10": figure.p10 / off**0.5, "p90": figure.p90 * off**0.5})


def prices(
    table: OperationTable,
    hardware: Hardware,
    model: Model,
    activations: Format,
    asked: int | None = None,
    batch: int | None = None,
) -> TablePrices:
    """`table`, with the work its rows stand for in a layer of `model`; `asked`, `batch`: of the question."""
    step = Iteration(1, "decode", table.batch, 1, table.context)
    fmt = Formats(table.format, table.kv_format, activations)
    context, sequences = asked or table.context, batch or table.batch
    operations = partial(_operations, table, model, fmt)
    weights: dict[str, int] = {}
    for tensor in block_tensors(model, 0):
        weights[tensor.op] = weights.get(tensor.op, 0) + tensor.elements
    return TablePrices(
        table,
        hardware,
        weights,
        operations(step),
        operations(Iteration(1, "decode", sequences, 1, context)) if sequences != table.batch else {},
        table.batch * cached_elements(model, table.cache, attending(table.cache, step).past * model.dense.kv_width),
        context,
        sequences,
    )


def _operations(table: OperationTable, model: Model, fmt: Formats, step: Iteration) -> dict[str, Operation]:
    """The operations of a layer by name; attention whole, and its parts where the table has those."""
    forms = (False,) if table.row("attention") is not None else (False, True)
    return {op.name: op for form in forms for op in varied_ops(model, 0, step, fmt, form, table.cache)}


def shape_of(model: Model) -> BlockShape:
    """The dimensions that decide what a layer of `model` costs."""
    shape = model.dense
    return BlockShape(
        hidden=shape.hidden,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        ffn=shape.ffn,
        gated=shape.gated,
    )


def _used_format(placed: Placed) -> StoredFormat:
    tensor = next(tensor for tensor in block_tensors(placed.model, 0) if tensor.op == "q")
    rule = residence(placed, tensor)
    return rule.used
