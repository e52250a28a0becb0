"""Quantised blocks by numpy: values of GGUF's row-major blocks, its reference rounding, and packed panels read back.

A block of a row: q8_0 32 columns, scale, 32 signed codes; q4_0 32 columns, scale, 16 bytes of codes i and i + 16, 8
above; mxfp4 32 columns, a power of two (E8M0), 16 bytes of codes (E2M1) i and i + 16; q4_k 256 columns, scale and
minimum of scales and minima of 6 bits each, codes of 4; q6_k 256 columns, codes of 6 bits 32 above, 16 signed scales,
scale. q8 and q4: groups of 64 columns, scale, minimum, codes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from helmsman.executor._kernels import Arena, Buffer, pack, packed_size, unpack

if TYPE_CHECKING:
    from helmsman.schemas.formats import StoredFormat

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]

BLOCKS: dict[StoredFormat, tuple[int, int]] = {
    "q8_0": (32, 34),
    "q4_0": (32, 18),
    "q4_k": (256, 144),
    "q6_k": (256, 210),
    "mxfp4": (32, 17),
}
"""Columns and bytes of GGUF's blocks."""
GROUPS: tuple[StoredFormat, ...] = ("q8", "q4")
QUANTISED: tuple[StoredFormat, ...] = (*BLOCKS, *GROUPS)


def quantised(values: Floats, fmt: StoredFormat) -> Buffer:
    """A matrix packed from f32."""
    rows, columns = values.shape
    return packed(np.ascontiguousarray(values), "f32", fmt, rows, columns)


def packed(source: NDArray[np.generic], came: StoredFormat, fmt: StoredFormat, rows: int, columns: int) -> Buffer:
    size = packed_size(fmt, rows, columns)
    buffer = Arena(size + 64).alloc(size, "packed")
    pack(source.data, came, buffer, fmt, rows, columns)
    return buffer


def restored(buffer: Buffer, fmt: StoredFormat, rows: int, columns: int) -> Floats:
    found = np.full((rows, columns), np.nan, np.float32)
    unpack(buffer, fmt, found, rows, columns)
    return found


def random_blocks(fmt: StoredFormat, rows: int, columns: int, seed: int, scale: float | None = None) -> Bytes:
    """Rows of blocks of random bits under random finite scales, or all under `scale`."""
    rng = np.random.default_rng(seed)
    width, size = BLOCKS[fmt]
    blocks = rng.integers(0, 256, (rows * columns // width, size), np.uint8)
    if fmt == "mxfp4":
        byte = rng.integers(120, 130, len(blocks)) if scale is None else 127 + int(np.log2(scale))
        blocks[:, 0] = byte
        return blocks.reshape(rows, -1)
    for at in {"q4_k": (0, 2), "q6_k": (208,)}.get(fmt, (0,)):
        scales = rng.standard_normal((len(blocks), 1)) if scale is None else np.full((len(blocks), 1), scale)
        blocks[:, at : at + 2] = scales.astype(np.float16).view(np.uint8)
    return blocks.reshape(rows, -1)


def block_values(fmt: StoredFormat, rows: Bytes) -> Floats:
    """What row-major blocks stand for."""
    blocks = rows.reshape(-1, BLOCKS[fmt][1])
    values = {"q8_0": _q8_0, "q4_0": _q4_0, "q4_k": _q4_k, "q6_k": _q6_k, "mxfp4": _mxfp4}[fmt](blocks)
    return values.reshape(len(rows), -1)


def _half(blocks: Bytes, at: int) -> Floats:
    return np.ascontiguousarray(blocks[:, at : at + 2]).view(np.float16).astype(np.float32)


def _q8_0(blocks: Bytes) -> Floats:
    return _half(blocks, 0) * blocks[:, 2:].view(np.int8)


def _q4_0(blocks: Bytes) -> Floats:
    codes = np.concatenate([blocks[:, 2:] & 15, blocks[:, 2:] >> 4], 1)
    return _half(blocks, 0) * (codes.astype(np.float32) - 8)


def _q4_k(blocks: Bytes) -> Floats:
    first, second, third = blocks[:, 4:8], blocks[:, 8:12], blocks[:, 12:16]
    scales = np.concatenate([first & 63, (third & 15) | (first >> 6 << 4)], 1)
    minima = np.concatenate([second & 63, (third >> 4) | (second >> 6 << 4)], 1)
    both = blocks[:, 16:].reshape(-1, 4, 32)
    codes = np.stack([both & 15, both >> 4], 2).reshape(-1, 8, 32)
    scale, minimum = _half(blocks, 0) * scales, _half(blocks, 2) * minima
    return (scale[:, :, None] * codes - minimum[:, :, None]).astype(np.float32)


def _q6_k(blocks: Bytes) -> Floats:
    low, high = blocks[:, :128].reshape(-1, 2, 64), blocks[:, 128:192].reshape(-1, 2, 32)
    fours = np.concatenate([low & 15, low >> 4], 2)
    twos = np.concatenate([high >> shift & 3 for shift in (0, 2, 4, 6)], 2)
    codes = (fours | twos << 4).reshape(-1, 16, 16).astype(np.float32) - 32
    scales = _half(blocks, 208) * blocks[:, 192:208].view(np.int8)
    return (scales[:, :, None] * codes).astype(np.float32)


def _mxfp4(blocks: Bytes) -> Floats:
    codes = np.concatenate([blocks[:, 1:] & 15, blocks[:, 1:] >> 4], 1)
    levels = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
    values = np.where(codes < 8, 1, -1) * levels[codes % 8]
    return (values * np.exp2(blocks[:, :1].astype(np.float32) - 127)).astype(np.float32)


def reference_blocks(fmt: StoredFormat, values: Floats) -> Bytes:
    """GGUF's reference rounding of f32 rows: q8_0 halves away from zero, q4_0 by adding 8.5 and cutting off."""
    x = values.reshape(-1, 32)
    if fmt == "q8_0":
        scale = np.abs(x).max(1, keepdims=True) / np.float32(127)
        turned = x * _inverse(scale)
        codes = (np.sign(turned) * np.floor(np.abs(turned) + 0.5)).astype(np.int8).view(np.uint8)
    else:
        extreme = np.take_along_axis(x, np.abs(x).argmax(1)[:, None], 1)
        scale = extreme / np.float32(-8)
        whole = np.minimum((x * _inverse(scale) + np.float32(8.5)).astype(np.uint8), 15)
        codes = whole[:, :16] | whole[:, 16:] << 4
    return np.concatenate([scale.astype(np.float16).view(np.uint8), codes], 1).reshape(len(values), -1)


def _inverse(scale: Floats) -> Floats:
    return np.divide(np.float32(1), scale, out=np.zeros_like(scale), where=scale != 0)


def panel_groups(data: bytes, bits: int, rows: int, columns: int) -> Floats:
    """Packed q8 or q4, read as csrc/formats/panels.h describes it."""
    found = np.zeros((-(-rows // 16) * 16, -(-columns // 32) * 32), np.float32)
    raw, at, per_line = np.frombuffer(data, np.uint8), 0, 32 // bits
    for panel in range(0, len(found), 16):
        for first in range(0, found.shape[1], 64):
            count = min(64, found.shape[1] - first)
            scale, low = raw[at : at + 64].view(np.float16).astype(np.float32).reshape(2, 16, 1)
            lines = raw[at + 64 : at + 64 + count // per_line * 64].view(np.uint32).reshape(-1, 16)
            codes = np.stack([lines >> (c % 2 * 16 + c // 2 * bits) & (2**bits - 1) for c in range(per_line)], 1)
            found[panel : panel + 16, first : first + count] = codes.reshape(count, 16).T * scale + low
            at += 64 + count // per_line * 64
    assert at == len(data)
    return found[:rows, :columns]
