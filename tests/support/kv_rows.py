"""Rows of q8_0 caches in numpy: all codes of a row, then the scales of 32 values each."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def _coded(values: Floats) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """Codes (..., width) and scales (..., width / 32): halves away from zero, by the inverse of the unrounded scale."""
    groups = values.reshape(*values.shape[:-1], -1, 32)
    scales = np.abs(groups).max(-1, keepdims=True) / np.float32(127)
    inverse = np.where(scales < 2.0**-126, np.float32(0), 1 / np.maximum(scales, np.float32(2.0**-126)))
    product = (groups * inverse.astype(np.float32)).astype(np.float64)
    codes = np.sign(product) * np.floor(np.abs(product) + 0.5)
    return codes.astype(np.int8).reshape(values.shape), scales[..., 0].astype(np.float16)


def q8_rows(values: Floats) -> NDArray[np.uint8]:
    """(..., width) as (..., bytes of a row)."""
    codes, scales = _coded(values)
    return np.concatenate([codes.view(np.uint8), np.ascontiguousarray(scales).view(np.uint8)], -1)


def q8_values(values: Floats) -> Floats:
    """What their rows stand for."""
    codes, scales = _coded(values)
    found: Any = codes.astype(np.float32) * np.repeat(scales.astype(np.float32), 32, -1)
    return np.asarray(found, np.float32)
