"""Weights that are not finite are refused while they are packed: one of them makes nonsense of every token."""

import numpy as np
import pytest

from helmsman.executor._kernels import Arena, finite, pack, packed_size
from helmsman.executor.checkpoint.blocks import quantise
from helmsman.schemas.formats import FORMATS

ROWS, COLUMNS = 37, 512
PLAIN = {"f32": np.float32, "f16": np.float16}
BLOCKS = ("q8_0", "q4_0", "q4_k", "q6_k")
ENDLESS = (np.inf, -np.inf, np.nan)


def rows() -> np.ndarray:
    return np.random.default_rng(7).standard_normal((ROWS, COLUMNS)).astype(np.float32)


def as_bf16(values: np.ndarray) -> np.ndarray:
    return (values.view(np.uint32) >> 16).astype(np.uint16)


def stored(values: np.ndarray, fmt: str) -> np.ndarray:
    return as_bf16(values) if fmt == "bf16" else values.astype(PLAIN[fmt])


@pytest.mark.parametrize("fmt", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("value", ENDLESS)
def test_every_place_is_looked_at(fmt: str, value: float) -> None:
    for place in (0, COLUMNS - 1, COLUMNS * ROWS // 2 + 3, COLUMNS * ROWS - 1):
        values = rows()
        assert finite(stored(values, fmt).data, fmt, ROWS, COLUMNS)
        values.ravel()[place] = value
        assert not finite(stored(values, fmt).data, fmt, ROWS, COLUMNS)


@pytest.mark.parametrize("fmt", ["f32", "f16", "bf16"])
def test_the_largest_and_the_least_numbers_are_numbers(fmt: str) -> None:
    values = np.zeros((16, 32), np.float32)
    values[0, :4] = {"f32": 3.4e38, "f16": 65504.0, "bf16": 3.38e38}[fmt], -1e-40, 1e-7, -0.0
    assert finite(stored(values, fmt).data, fmt, 16, 32)


@pytest.mark.parametrize("fmt", BLOCKS)
def test_scales_of_blocks_are_looked_at(fmt: str) -> None:
    """Everywhere a scale is, and nowhere else: codes may be any bits."""
    blocks = quantise(rows(), fmt)
    size = blocks.shape[1] // (COLUMNS // (256 if fmt.endswith("k") else 32))
    places = {"q8_0": (0,), "q4_0": (0,), "q4_k": (0, 2), "q6_k": (208,)}[fmt]
    for at in range(0, size - 1, 2):
        broken = blocks.copy()
        broken[ROWS - 1, -size + at : blocks.shape[1] - size + at + 2] = (0x00, 0x7C)
        assert finite(broken.data, fmt, ROWS, COLUMNS) == (at not in places), at


@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("source", ["f32", "f16", "bf16"])
def test_packing_refuses_them(source: str, target: str) -> None:
    values = rows()
    values[ROWS - 1, 5] = np.nan
    size = packed_size(target, ROWS, COLUMNS)
    with pytest.raises(FloatingPointError):
        pack(stored(values, source).data, source, Arena(size).alloc(size, "matrix"), target, ROWS, COLUMNS)


@pytest.mark.parametrize(("source", "target"), [("f32", "f16"), ("bf16", "f16"), ("f32", "bf16")])
def test_packing_refuses_what_becomes_infinite(source: str, target: str) -> None:
    values = rows()
    values[3, 3] = 3.4e38 if source == "f32" else 1e6
    size = packed_size(target, ROWS, COLUMNS)
    with pytest.raises(FloatingPointError, match=target):
        pack(stored(values, source).data, source, Arena(size).alloc(size, "matrix"), target, ROWS, COLUMNS)
