"""Quantised blocks of GGUF files, as ggml's reference makes them."""

import numpy as np
import pytest
from numpy.typing import NDArray

from helmsman.executor.checkpoint.blocks import quantise


def dequantise(blocks: NDArray[np.uint8], fmt: str) -> NDArray[np.float32]:
    rows = blocks.reshape(-1, 34 if fmt == "q8_0" else 18)
    scale = rows[:, :2].copy().view("<f2").astype(np.float32)
    if fmt == "q8_0":
        codes = rows[:, 2:].view(np.int8).astype(np.float32)
    else:
        codes = np.concatenate([rows[:, 2:] & 15, rows[:, 2:] >> 4], axis=1).astype(np.float32) - 8
    return (scale * codes).reshape(blocks.shape[0], -1)


def ramp() -> NDArray[np.float32]:
    return (np.arange(32, dtype=np.float32) - 16) / 4


def test_q8_0_by_hand() -> None:
    """Scale 4 / 127; the largest magnitude becomes -127, and -0.25 lies between -7.9 and -8."""
    found = quantise(ramp()[None], "q8_0")[0]
    assert found[:2].tobytes() == np.float16(4 / 127).tobytes()
    codes = found[2:].view(np.int8)
    assert codes[0] == -127 and codes[16] == 0 and codes[15] == -8 and codes[31] == 119


def test_q4_0_by_hand() -> None:
    """The largest magnitude, -4, becomes -8: scale 0.5, code 0; byte i holds values i and i + 16."""
    found = quantise(ramp()[None], "q4_0")[0]
    assert found[:2].tobytes() == np.float16(0.5).tobytes()
    assert found[2] == 0x80 and found[17] == 0xF8
    assert np.abs(dequantise(quantise(ramp()[None], "q4_0"), "q4_0") - ramp()).max() <= 0.25


def test_halves_are_rounded_away_from_zero() -> None:
    row = np.zeros((1, 32), np.float32)
    row[0, :4] = 127, 0.5, -0.5, 2.5
    assert quantise(row, "q8_0")[0, 2:6].view(np.int8).tolist() == [127, 1, -1, 3]


@pytest.mark.parametrize("fmt", ["q8_0", "q4_0"])
def test_zeros_and_errors_within_half_a_step(fmt: str) -> None:
    values = np.random.default_rng(0).normal(size=(7, 96)).astype(np.float32)
    values[2] = 0
    found = dequantise(quantise(values, fmt), fmt)
    largest = np.abs(values.reshape(7, 3, 32)).max(axis=2).repeat(32, axis=1)
    step = largest / (127 if fmt == "q8_0" else 8)
    # The largest of the other sign may be one step beyond what four bits hold; the scale is rounded to f16.
    bound = step * (0.5 if fmt == "q8_0" else 1.0) + largest * 2**-10
    assert np.all(np.abs(found - values) <= bound) and not found[2].any()
