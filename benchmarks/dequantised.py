"""The values that a matrix stands for once it is kept in a format."""

import numpy as np
from numpy.typing import NDArray

from helmsman.executor._kernels import Arena, pack, packed_size, unpack
from helmsman.schemas.formats import StoredFormat


def dequantised(fmt: StoredFormat, values: NDArray[np.float32]) -> NDArray[np.float32]:
    """What a matrix stands for once it is kept in `fmt`; vectors stay as they are."""
    if values.ndim < 2:
        return values
    rows, columns = values.shape
    size = packed_size(fmt, rows, columns)
    buffer = Arena(size).alloc(size, "quantised")
    pack(np.ascontiguousarray(values), "f32", buffer, fmt, rows, columns)
    found = np.empty((rows, columns), np.float32)
    unpack(buffer, fmt, found, rows, columns)
    return found
