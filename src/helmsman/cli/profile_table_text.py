"""An operation table for people: milliseconds, and what was noticed while it was measured."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from helmsman.schemas.hardware import Hardware, Reading
    from helmsman.schemas.operation_table import OperationRow, OperationTable

DISTURBED = 0.08
"""Share of the CPU time taken by others beyond which figures mean little (rule 2 of measuring)."""
_WIDTH = 13


def table_summary(hardware: "Hardware", table: "OperationTable", name: str) -> str:
    """The table of a layer of model `name`."""
    from helmsman.executor.profile.table_record import TABLE
    from helmsman.schemas.operation_table import COLUMNS

    shown = [column for column in COLUMNS if any(getattr(row, column) for row in table.rows)]
    threads = "1 thread" if table.threads == 1 else f"{table.threads} threads"
    title = (
        f"one layer of {name}, batch {table.batch}, {table.context} tokens in the cache, {table.format} weights,"
        f" {table.kv_format} KV; host on {threads}; ms"
    )
    head = "  " + "operation".ljust(10) + "".join(column.rjust(_WIDTH) for column in shown)
    rows = ["  " + row.op.ljust(10) + "".join(_cells(row, shown)) for row in table.rows]
    sums = [sum(getattr(row, column).value for row in table.rows if getattr(row, column)) for column in shown]
    last = "  " + "layer".ljust(10) + "".join(_cell(total) for total in sums)
    own = [reading for reading in hardware.readings if reading.conditions.get(TABLE) == table.key]
    return "\n".join([title, head, *rows, last, *_notes(own)])


def _cells(row: "OperationRow", shown: list[str]) -> Iterator[str]:
    for column in shown:
        figure = getattr(row, column)
        yield "-".rjust(_WIDTH) if figure is None else _cell(figure.value)


def _cell(seconds: float) -> str:
    return f"{1e3 * seconds:{_WIDTH}.4f}"


def _notes(readings: list["Reading"]) -> Iterator[str]:
    """Storage devices and what they carry, what measuring cost, and how much it was disturbed."""
    from helmsman.executor.profile.readings import OTHERS
    from helmsman.executor.profile.table_record import SHARE, TOOK

    for each in readings:
        value = each.figure.value
        if each.what == SHARE:
            direct = each.conditions["direct"]
            buffered = "" if direct else "; the file system has no direct reads, buffered ones are used"
            yield f"  storage {each.conditions['folder']}: {value:.1%} of every weight{buffered}"
        elif each.what == TOOK:
            yield f"  measured in {value:.1f} s"
        elif each.what == OTHERS and value > DISTURBED:
            yield f"  disturbed: other processes took {value:.0%} of the CPU time; measure with --again"
