"""Weights from the format of their file to that of their home, a few rows at a time."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helmsman.executor._kernels import Arena, Buffer, pack, packed_size, unpack
from helmsman.executor.weights.group_rows import GroupRows
from helmsman.executor.weights.stored_rows import JoinedRows, StoredRows
from helmsman.executor.weights.turned_rows import TurnedRows
from helmsman.lowering.operation import PANEL
from helmsman.schemas.formats import FORMATS, StoredFormat

STEP_BYTES = 2**19
"""Of the rows, in f32, that are read at a time."""

Rows = NDArray[Any] | StoredRows | JoinedRows | TurnedRows | GroupRows
"""Rows in memory, or in a file."""


def pack_rows(rows: Rows, source: Any, target: Buffer, fmt: StoredFormat, columns: int) -> None:
    """Pack `rows` of `columns` values, in the format `source` as `Weights.tensor` gives them, into `target` as `fmt`.

    Blocks stay as they are where the formats are one; from one block format to another values go through f32.
    Raises FloatingPointError where a value is not finite."""
    direct = source in FORMATS or fmt in (source, *FORMATS)
    for first, read in in_steps(rows, columns):
        values: NDArray[Any] = read if direct else rows_as_f32(read, source, columns)
        begin = packed_size(fmt, first, columns) if first else 0
        part = target.part(begin, packed_size(fmt, len(values), columns))
        pack(values.data, source if direct else "f32", part, fmt, len(values), columns)


def first_not_finite(rows: Rows, source: Any, fmt: StoredFormat, columns: int) -> int:
    """Return the first of rows with a value that `pack_rows` refuses, 0 where there is none."""
    size = packed_size(fmt, PANEL, columns)
    target = Arena(size).alloc(size, "one row")
    for row in range(len(rows)):
        try:
            pack_rows(rows[row : row + 1], source, target, fmt, columns)
        except FloatingPointError:
            return row
    return 0


def in_steps(rows: Rows, columns: int) -> Iterator[tuple[int, NDArray[Any]]]:
    """(first row, rows) of all `rows` of `columns` values, in whole panels that a cache holds."""
    step = max(1, STEP_BYTES // (4 * columns * PANEL)) * PANEL
    for first in range(0, len(rows), step):
        yield first, np.ascontiguousarray(rows[first : first + step])


def rows_as_f32(rows: NDArray[Any], source: Any, columns: int) -> NDArray[np.float32]:
    """The values of rows in a block format, f32 (rows, columns). Raises FloatingPointError as `pack_rows` does."""
    size = packed_size("f32", len(rows), columns)
    packed = Arena(size).alloc(size, "rows between two formats")
    pack(np.ascontiguousarray(rows).data, source, packed, "f32", len(rows), columns)
    values = np.empty((len(rows), columns), np.float32)
    unpack(packed, "f32", values.data, len(rows), columns)
    return values
