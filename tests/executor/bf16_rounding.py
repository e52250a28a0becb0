"""Rounding to bf16 by numpy, which tests compare kernels with."""

import numpy as np
from numpy.typing import NDArray


def nearest_bf16(values: NDArray[np.floating]) -> NDArray[np.float32]:
    """Return the values rounded to the nearest bf16, ties to even, as f32."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16
    return bits.astype(np.uint32).view(np.float32)
