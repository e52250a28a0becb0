"""Prices from a measured operation table, scaled from the work it was measured on to the work of a task (PARK-46)."""

from dataclasses import dataclass
from typing import Literal

from helmsman.lowering.graph import Task
from helmsman.lowering.ops import DIVIDED, Formats, block_ops
from helmsman.lowering.placement import Placed
from helmsman.lowering.rules import kv_rule, residence
from helmsman.lowering.tensors import block_tensors
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.figures import Figure
from helmsman.schemas.formats import Format, size_of
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.model import Model
from helmsman.schemas.operation_table import BlockShape, OperationRow, OperationTable

Column = Literal["host", "accelerator", "transfer", "transfer_q4", "decompress", "storage"]

_CACHES = {"keys": ("scores",), "values": ("wv",), "kv": ("scores", "wv")}


@dataclass(frozen=True, slots=True)
class Priced:
    """Measured seconds for `work` units of which a task does `amount`."""

    figures: tuple[Figure, ...]
    scale: float


@dataclass(frozen=True, slots=True)
class Place:
    """The rows and the column that a task's price stands in; it does `scale` times the work of those rows."""

    ops: tuple[str, ...]
    column: Column
    scale: float


@dataclass(frozen=True)
class TablePrices:
    """A table, and how much work each of its rows stands for.

    `weights`: elements of an operation's tensors; `reads`: bytes that an operation reads at the table's context;
    `moves`: activation bytes it touches."""

    table: OperationTable
    hardware: Hardware
    weights: dict[str, int]
    reads: dict[str, int]
    moves: dict[str, int]
    cache_elements: int

    def measured(self, task: Task) -> Priced | None:
        """What the table says about `task`; None when it was not measured (prompts, ends, hidden states)."""
        place = self.place(task)
        if place is None:
            return None
        figures = [_figure(self.table.row(op), place.column) for op in place.ops]
        found = tuple(figure for figure in figures if figure is not None)
        return Priced(found, place.scale) if len(found) == len(figures) else None

    def place(self, task: Task) -> Place | None:
        """Where a table has the price of `task`; None when it has no such place."""
        if task.phase != "decode" or task.layer is None:
            return None
        if task.kind == "transfer":
            return self._transfer(task)
        if task.kind == "decompress":
            return self._decompress(task)
        return self._compute(task)

    def _compute(self, task: Task) -> Place | None:
        columns: dict[str, Column] = {self.table.host: "host", self.table.accelerator: "accelerator"}
        column = columns.get(task.resource)
        if column is None or task.kind in ("pin", "reshape"):
            return None
        ops = DIVIDED if task.kind == "attention" else (task.op,)
        amount, of = task.bytes, sum(self.reads.get(op, 0) for op in ops)
        if task.kind in ("softmax", "append", "norm"):
            amount, of = task.activation_bytes, self.moves[task.op]
        return Place(ops, column, amount / of if of else 1.0)

    def _transfer(self, task: Task) -> Place | None:
        source, target = task.memories
        if target != self.hardware.device(self.table.accelerator).memory:
            return None
        stored = self.hardware.memory(source).kind == "nvme"
        column: Column = "storage" if stored else "transfer_q4" if task.format == "q4" else "transfer"
        ops, elements = self._content(task.op)
        return Place(ops, column, task.bytes / size_of(elements, task.format)) if elements else None

    def _decompress(self, task: Task) -> Place | None:
        ops, elements = self._content(task.op.removesuffix(".decompress"))
        of = size_of(elements, "q4") + size_of(elements, self.table.format)
        return Place(ops, "decompress", task.bytes / of) if elements else None

    def _content(self, name: str) -> tuple[tuple[str, ...], int]:
        """The rows a transfer called `name` belongs to, and the elements those rows moved."""
        if name in _CACHES:
            return _CACHES[name], len(_CACHES[name]) * self.cache_elements
        op = name.removesuffix(".weights")
        return ((op,), self.weights.get(op, 0)) if name.endswith(".weights") else ((), 0)


def _figure(row: OperationRow | None, column: str) -> Figure | None:
    figure: Figure | None = getattr(row, column) if row else None
    return figure


def table_prices(placed: Placed) -> TablePrices | None:
    """The table of the hardware that was measured on such a layer with such a batch, if there is one."""
    computed = _used_format(placed)
    kv = kv_rule(placed, 0)
    for table in placed.hardware.tables:
        same = table.shape == shape_of(placed.model) and table.batch == placed.workload.batch
        stored = kv.expanded if kv.format == "q4" else kv.format
        if same and (size_of(1, table.format), size_of(1, table.kv_format)) == (
            size_of(1, computed),
            size_of(1, stored),
        ):
            return prices(table, placed.hardware, placed.model, placed.activations)
    return None


def prices(table: OperationTable, hardware: Hardware, model: Model, activations: Format) -> TablePrices:
    """`table`, with the work its rows stand for in a layer of `model`."""
    step = Iteration(1, "decode", table.batch, 1, table.context)
    ops = block_ops(model, 0, step, Formats(table.format, table.kv_format, activations), divided=True)
    weights: dict[str, int] = {}
    for tensor in block_tensors(model, 0):
        weights[tensor.op] = weights.get(tensor.op, 0) + tensor.elements
    return TablePrices(
        table,
        hardware,
        weights,
        {op.name: op.memory_bytes for op in ops},
        {op.name: op.activation_bytes for op in ops},
        table.batch * (table.context - 1) * model.kv_width,
    )


def shape_of(model: Model) -> BlockShape:
    """The dimensions that decide what a layer of `model` costs."""
    return BlockShape(
        hidden=model.hidden,
        heads=model.heads,
        kv_heads=model.kv_heads,
        head_dim=model.head_dim,
        ffn=model.ffn,
        gated=model.gated,
    )


def _used_format(placed: Placed) -> Format:
    tensor = next(tensor for tensor in block_tensors(placed.model, 0) if tensor.op == "q")
    rule = residence(placed, tensor)
    return rule.expanded if rule.format == "q4" else rule.format
