"""The complete operation table of a question: every price of a layer's mean decode step, as rows (PARK-46)."""

from collections.abc import Iterator
from dataclasses import replace

from helmsman.hwdb.percentiles import STRETCH
from helmsman.lowering.graph import Task
from helmsman.lowering.ops import LINEAR_OPS
from helmsman.planner.cost.estimate import Estimate
from helmsman.planner.cost.model import CostModel
from helmsman.planner.cost.table_prices import TablePrices, prices, shape_of
from helmsman.planner.prediction.predict import mean_step
from helmsman.planner.strategies.streaming.division import layer_operations
from helmsman.planner.strategies.streaming.place import Frame, Layout
from helmsman.planner.strategies.streaming.work import layer_tasks
from helmsman.schemas.figures import Figure
from helmsman.schemas.formats import is_plain
from helmsman.schemas.operation_table import COLUMNS, OperationName, OperationRow, OperationTable

Cell = tuple[str, str]
"""An operation and a column of its row."""


def tabulate(frame: Frame, costs: CostModel, storage: tuple[str, ...] = ()) -> OperationTable:
    """Every price of one layer in the mean decode step of one batch, measured or derived, as a table that gives them.

    `storage`: memories from which weights may come; without one that column stays empty. Measured figures keep their
    source; a derived one names the source of the device or link it was derived from."""
    blank = _blank(frame)
    figures: dict[Cell, Figure] = {}
    for cell, tasks in cells(frame, blank, storage).items():
        scale = sum(share for _, share in tasks)
        whole = [costs.price(task) for task, _ in tasks]
        figures[cell] = _figure(_source(costs, tasks[0][0], whole[0].source), whole, scale)
    return blank.model_copy(update={"rows": tuple(_row(row, figures) for row in blank.rows)})


def cells(frame: Frame, table: OperationTable, storage: tuple[str, ...]) -> dict[Cell, list[tuple[Task, float]]]:
    """The tasks of the mean decode step that `table` has a place for, by that place, with their share of its work."""
    priced = prices(table, frame.roles.hardware, frame.model, frame.roles.activations)
    result: dict[Cell, list[tuple[Task, float]]] = {}
    for tasks in _variants(frame, storage):
        here = _placed(priced, tasks)
        result |= {cell: work for cell, work in here.items() if cell not in result}
    return result


def _variants(frame: Frame, storage: tuple[str, ...]) -> Iterator[list[Task]]:
    """A layer on the host, streamed as it is, streamed in 4-bit groups, and streamed from storage."""
    whole = frame.units({})
    streamed = Layout(whole, 0, len(whole))
    yield layer_tasks(frame, Layout(whole, 0, 0))
    yield layer_tasks(frame, streamed)
    yield layer_tasks(frame, replace(streamed, weights_q4=is_plain(frame.weights), cache_q4=is_plain(frame.kv)))
    if storage:
        linear = tuple(op for op in layer_operations(frame.model, frame.form) if op in LINEAR_OPS)
        yield layer_tasks(frame, replace(streamed, stored=linear, storage=storage))


def _placed(priced: TablePrices, tasks: list[Task]) -> dict[Cell, list[tuple[Task, float]]]:
    result: dict[Cell, list[tuple[Task, float]]] = {}
    for task in tasks:
        place = priced.place(task)
        if place is not None and len(place.ops) == 1 and place.scale > 0:
            result.setdefault((place.ops[0], place.column), []).append((task, place.scale))
    return result


def _blank(frame: Frame) -> OperationTable:
    """A table for the question, without figures."""
    divided: tuple[OperationName, ...] = ("scores", "softmax", "wv")
    attention: tuple[OperationName, ...] = divided if frame.form == "divided" else ("attention",)
    gate: tuple[OperationName, ...] = ("gate",) if frame.model.dense.gated else ()
    names: tuple[OperationName, ...] = ("norm1", "q", "k", "v", "append", *attention, "o", "norm2", *gate, "up", "down")
    return OperationTable(
        shape=shape_of(frame.model),
        batch=frame.workload.batch,
        context=mean_step(frame.workload).context,
        format=frame.weights,
        kv_format=frame.kv,
        host=frame.roles.host.name,
        accelerator=frame.accelerator.name,
        cache=frame.cache,
        rows=tuple(OperationRow(op=op) for op in names),
    )


def _row(row: OperationRow, measured: dict[Cell, Figure]) -> OperationRow:
    figures = {column: measured[row.op, column] for column in COLUMNS if (row.op, column) in measured}
    return row.model_copy(update=figures)


def _figure(source: str, parts: list[Estimate], scale: float) -> Figure:
    """The sum of prices as a figure; the 5th and 95th percentile of an estimate become the 10th and 90th."""
    low, mid, high = (sum(getattr(part, end) for part in parts) / scale for end in ("low", "mid", "high"))
    p10, p90 = mid - (mid - low) / STRETCH, mid + (high - mid) / STRETCH
    return Figure(value=mid, p10=min(p10, mid), p90=max(p90, mid), source=source)


def _source(costs: CostModel, task: Task, kind: str) -> str:
    """Where the price of `task` comes from, as a key of the machine's sources; a derived one is of `kind`, or of what
    its device was measured with, where it was assumed to hold for another format."""
    hardware, measured = costs.hardware, costs.table.measured(task) if costs.table else None
    if measured is not None:
        return measured.figures[0].source
    own = [device.read.source for device in hardware.devices if device.name == task.resource]
    own += [link.bandwidth.source for link in hardware.links if link.name == task.resource]
    keys = (*own, *hardware.sources)
    return next((key for key in keys if hardware.sources[key].kind == kind), keys[0])
