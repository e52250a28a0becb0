"""Is an operation table of this question, and are its figures in seconds (PARK-46)?"""

from collections.abc import Iterator, Mapping
from math import log10
from statistics import median

from helmsman.planner.cost.model import CostModel, CostOptions
from helmsman.planner.cost.table_prices import shape_of
from helmsman.planner.prediction.predict import mean_step
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.planner.strategies.streaming.tabulate import cells
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.figures import Figure
from helmsman.schemas.formats import same_size
from helmsman.schemas.operation_table import COLUMNS, BlockShape, OperationTable

SUSPECT = 100.0
"""Measured operations are within this factor of their rooflines; units that are mistaken are not."""

NEAR = 1.25
"""Decades from a power of 1000 at which its units are still named."""

_UNITS = {
    -3: "looks like seconds divided by a billion",
    -2: "looks like seconds divided by a million",
    -1: "looks like seconds divided by a thousand",
    1: "looks like milliseconds written as seconds",
    2: "looks like microseconds written as seconds",
    3: "looks like nanoseconds written as seconds",
}
"""What a factor of 1000 ** k is the sign of."""


def check_table(table: OperationTable, frame: Frame, file: str | None = None) -> None:
    """Raise BadInputError, naming what differs, when `table` was not measured for the question of `frame`."""
    for field, value, expected, remedy in _differences(table, frame):
        if value != expected:
            wanted = f"the table is for another question: this one has {expected}"
            raise BadInputError(wanted, file=file, field=field, value=value, remedy=remedy)
    known = frame.roles.hardware.sources
    for place, row in enumerate(table.rows):
        unknown = next((figure.source for figure in row.figures() if figure.source not in known), None)
        if unknown is not None:
            remedy = f"use one of {', '.join(known)}"
            message = f"{frame.roles.hardware.name} has no such source"
            raise BadInputError(message, file=file, field=f"rows.{place}.source", value=unknown, remedy=remedy)


def table_warnings(table: OperationTable, frame: Frame, storage: tuple[str, ...] = ()) -> tuple[str, ...]:
    """One warning for every column with rows that are 100 times or more off their rooflines, in either direction.

    Rows that would not be at the context of the question have one warning of their own: it is the table's context
    that is wrong, not its units."""
    alike = table.model_copy(update={"context": mean_step(frame.workload).context})
    messages, elsewhere = list[str](), set[str]()
    for column in COLUMNS:
        ratios, at_context = (dict(_ratios(version, frame, column, storage)) for version in (table, alike))
        explained = {op for op in ratios if _wrong(ratios[op]) and not _wrong(at_context.get(op, ratios[op]))}
        elsewhere |= explained
        for many in (True, False):
            off = {op: ratio for op, ratio in ratios.items() if _off(ratio, many) and op not in explained}
            if off:
                messages.append(_warning(column, off, len(ratios), many))
    return (*_of_context(table, alike.context, elsewhere), *messages)


def _differences(table: OperationTable, frame: Frame) -> Iterator[tuple[str, object, object, str]]:
    """(field, the table's value, the question's, what to do)."""
    shape = shape_of(frame.model)
    for name in BlockShape.model_fields:
        yield f"shape.{name}", getattr(table.shape, name), getattr(shape, name), "name the model it was measured on"
    if not table.cache.plain:
        remedy = "give the options that it was written with, or a table of plain attention"
        yield "cache", table.cache.label, frame.cache.label, remedy
    yield "batch", table.batch, frame.workload.batch, f"use `batch` {table.batch}, or measure this batch"
    for name, fmt, expected in (("format", table.format, frame.weights), ("kv_format", table.kv_format, frame.kv)):
        if not same_size(fmt, expected):
            yield name, fmt, expected, f"use `{name}` {fmt}"
    yield "host", table.host, frame.roles.host.name, "name the device that computed"
    yield "accelerator", table.accelerator, frame.accelerator.name, "name the device that computed"


def _ratios(table: OperationTable, frame: Frame, column: str, storage: tuple[str, ...]) -> Iterator[tuple[str, float]]:
    """Yield what the table says over what the roofline says, for every figure of `column` that is not of an instant."""
    costs = CostModel(frame.roles.hardware, CostOptions())
    for (op, where), tasks in cells(frame, table, storage).items():
        row = table.row(op)
        figure: Figure | None = getattr(row, column) if row is not None else None
        derived = sum(costs.price(task).mid for task, _ in tasks) / sum(share for _, share in tasks)
        if where == column and figure is not None and derived > 0:
            yield op, figure.value / derived


def _of_context(table: OperationTable, context: int, rows: set[str]) -> Iterator[str]:
    if rows:
        named = ", ".join(row.op for row in table.rows if row.op in rows)
        yield (
            f"`table`: context {table.context}, {named}: {SUSPECT:.0f} times or more off the machine's rates at that "
            f"context, and not at {context} tokens; correct the context, or measure again"
        )


def _wrong(ratio: float) -> bool:
    return _off(ratio, True) or _off(ratio, False)


def _off(ratio: float, many: bool) -> bool:
    return ratio >= SUSPECT if many else ratio <= 1 / SUSPECT


def _warning(column: str, off: Mapping[str, float], rows: int, many: bool) -> str:
    middle = median(off.values())
    which = "every row" if len(off) == rows else ", ".join(off)
    if middle == 0:
        return f"`table`: column {column}, {which}: 0 seconds, but the machine's rates say otherwise"
    times = f"{middle if many else 1 / middle:,.0f} times {'slower' if many else 'faster'}"
    power = round(log10(middle) / 3)
    units = f"; {_UNITS[power]}" if power in _UNITS and abs(log10(middle) - 3 * power) <= NEAR else ""
    return f"`table`: column {column}, {which}: {times} than the machine's rates say{units}"
