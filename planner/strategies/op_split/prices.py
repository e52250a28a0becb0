"""Prices of the units of a layer: computed on either side, transferred, expanded, read from storage (PARK-46).

Every figure is the price of a task that lowering makes of the operation there, so that search, prediction and
simulation agree."""

from collections.abc import Callable

import numpy as np

from helmsman.lowering.graph import Task, TaskKind
from helmsman.planner.cost.model import CostModel
from helmsman.planner.cost.stripes import parallel
from helmsman.planner.strategies.op_split.contention import SharedPool
from helmsman.planner.strategies.op_split.dataflow import Dataflow, activation_links, dataflow
from helmsman.planner.strategies.op_split.layer_table import LayerTable, chunked, divided
from helmsman.planner.strategies.op_split.layer_table import layer_table as of_operations
from helmsman.planner.strategies.streaming.division import DivisionPiece
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.planner.strategies.streaming.work import LayerWork
from helmsman.schemas.hardware import Hardware

Price = Callable[[Task], float]


def layer_table(hardware: Hardware, costs: CostModel, units: tuple[DivisionPiece, ...], work: LayerWork) -> LayerTable:
    """The table of one layer in the mean decode step of one batch, divided into `units`."""
    price = _median(costs)
    columns = work.columns(price)
    columns["storage"] = {op: _together(hardware, price, work.stored(op)) for op in work.ops}
    whole_table = of_operations(work.ops, {name: tuple(column.values()) for name, column in columns.items()})
    parts = _fractions(units)
    return chunked(whole_table, {op: shares for op, shares in parts.items() if len(shares) > 1})


def layer_dataflow(frame: Frame, costs: CostModel, units: tuple[DivisionPiece, ...], work: LayerWork) -> Dataflow:
    """Return what crosses between the units of one layer, by the same prices."""
    return dataflow(frame, units, _seconds(costs, work.here), _seconds(costs, work.there))


def _seconds(costs: CostModel, tasks: list[Task]) -> dict[tuple[str, TaskKind], float]:
    """By operation and kind."""
    seconds: dict[tuple[str, TaskKind], float] = {}
    for task in tasks:
        key = task.operation, task.kind
        seconds[key] = seconds.get(key, 0.0) + costs.price(task).mid
    return seconds


def layer_pools(
    frame: Frame, costs: CostModel, units: tuple[DivisionPiece, ...], work: LayerWork
) -> tuple[SharedPool, ...]:
    """The memories and links that tasks of several lanes draw on, and for how long each unit needs them."""
    price, pools, shares = _median(costs), costs.pools, list(_fractions(units).values())
    into, back = (pools.per_byte(link) for link in activation_links(frame))

    def pool(name: str) -> SharedPool:
        whole = work.columns(lambda task: pools.draws(task, price(task)).get(name, 0.0))
        columns = {column: np.array(divided(amounts.values(), shares)) for column, amounts in whole.items()}
        return SharedPool(name, columns, into.get(name, 0.0), back.get(name, 0.0))

    return tuple(shared for shared in map(pool, pools.capacity) if shared.lanes > 1)


def _median(costs: CostModel) -> Price:
    return lambda task: costs.price(task).mid


def _together(hardware: Hardware, price: Price, tasks: list[Task]) -> float:
    """Seconds until all devices have read their stripes (PARK-42)."""
    return parallel(hardware, [(task.resource, price(task), task.bytes) for task in tasks])


def _fractions(units: tuple[DivisionPiece, ...]) -> dict[str, list[float]]:
    """The shares of the chunks of every operation."""
    shares: dict[str, list[float]] = {}
    for unit in units:
        shares.setdefault(unit.op, []).append((unit.stop - unit.start) / unit.extent)
    return shares
