"""Weights from the format of their file to that of their home, a few rows at a time where they pass through f32."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from helmsman.executor._kernels import Arena, Buffer, pack, packed_size, unpack
from helmsman.hwdb.gguf_types import PLAIN
from helmsman.lowering.ops import PANEL
from helmsman.schemas.formats import FORMATS, StoredFormat

STEP_BYTES = 2**22
"""Of the f32 rows that are between two formats."""


def pack_rows(rows: NDArray[Any], source: Any, target: Buffer, fmt: StoredFormat, columns: int) -> None:
    """Pack `rows` of `columns` values, in the format `source` as `Weights.tensor` gives them, into `target` as `fmt`.

    Blocks stay as they are where the formats are one; from one block format to another values go through f32."""
    count = rows.shape[0]
    if source in PLAIN or fmt in (source, *FORMATS):
        pack(np.ascontiguousarray(rows).data, source, target, fmt, count, columns)
        return
    step = max(1, STEP_BYTES // (4 * columns * PANEL)) * PANEL
    for first in range(0, count, step):
        values = rows_as_f32(rows[first : first + step], source, columns)
        begin = packed_size(fmt, first, columns) if first else 0
        part = target.part(begin, packed_size(fmt, len(values), columns))
        pack(values.data, "f32", part, fmt, len(values), columns)


def rows_as_f32(rows: NDArray[Any], source: Any, columns: int) -> NDArray[np.float32]:
    """The values of rows in a block format, f32 (rows, columns)."""
    size = packed_size("f32", len(rows), columns)
    packed = Arena(size).alloc(size, "rows between two formats")
    pack(np.ascontiguousarray(rows).data, source, packed, "f32", len(rows), columns)
    values = np.empty((len(rows), columns), np.float32)
    unpack(packed, "f32", values.data, len(rows), columns)
    return values
