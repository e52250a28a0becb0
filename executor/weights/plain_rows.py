"""Rows of a file in any format as f32 values: pieces of one matrix may have several."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from helmsman.executor.weights.conversion import rows_as_f32
from helmsman.executor.weights.stored_rows import StoredRows


class PlainRows:
    """The `columns` values of each of some rows that a file has in the format `source`; read as `StoredRows` are."""

    def __init__(self, rows: StoredRows, source: str, columns: int) -> None:
        self.shape: tuple[int, ...] = len(rows), columns
        self.nbytes = 4 * len(rows) * columns
        self._rows, self._source = rows, source

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> NDArray[np.float32]:
        """The values of these rows. Raises what `StoredRows` and `rows_as_f32` raise."""
        read = self._rows[rows]
        return rows_as_f32(read, self._source, self.shape[1]) if len(read) else np.empty((0, self.shape[1]), np.float32)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.asarray(self[:], dtype)
