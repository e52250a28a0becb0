"""Quantising rows to the blocks of GGUF files, row-major, byte by byte as ggml's reference does."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BLOCK = 32
QUANTISED = ("q8_0", "q4_0")


def quantise(values: "NDArray[np.float32]", fmt: str) -> "NDArray[np.uint8]":
    """f32 (rows, columns), columns a multiple of 32, to uint8 (rows, bytes per row) of `q8_0` or `q4_0` blocks."""
    blocks = values.reshape(-1, BLOCK)
    coded = _q8_0(blocks) if fmt == "q8_0" else _q4_0(blocks)
    return coded.reshape(values.shape[0], -1)


def _q8_0(blocks: "NDArray[np.float32]") -> "NDArray[np.uint8]":
    """f16 scale, then 32 signed bytes: the largest magnitude becomes 127."""
    import numpy as np

    scale = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
    scaled = blocks * _inverse(scale)
    magnitude = np.abs(scaled)
    whole = np.floor(magnitude)
    codes = np.copysign(whole + (magnitude - whole >= 0.5), scaled)  # halves go away from zero
    return np.concatenate([_f16_bytes(scale), codes.astype(np.int8).view(np.uint8)], axis=1)


def _q4_0(blocks: "NDArray[np.float32]") -> "NDArray[np.uint8]":
    """f16 scale, then 16 bytes of values i (low half) and i + 16: the value of largest magnitude becomes -8."""
    import numpy as np

    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=1)[:, None], axis=1)
    scale = largest / np.float32(-8)
    codes = np.minimum(blocks * _inverse(scale) + np.float32(8.5), np.float32(15)).astype(np.uint8)
    low, high = codes[:, : BLOCK // 2], codes[:, BLOCK // 2 :]
    return np.concatenate([_f16_bytes(scale), low | high << 4], axis=1)


def _inverse(scale: "NDArray[np.float32]") -> "NDArray[np.float32]":
    import numpy as np

    return np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale != 0)


def _f16_bytes(scale: "NDArray[np.float32]") -> "NDArray[Any]":
    return scale.astype("<f2").view("u1")
