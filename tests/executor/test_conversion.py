"""Rows from one block format to another: as if all of them had been in f32 at once."""

import numpy as np
import pytest
from test_blocks import dequantise

from helmsman.executor._kernels import Arena, Buffer, packed_size, unpack
from helmsman.executor.checkpoint.blocks import quantise
from helmsman.executor.weights import conversion
from helmsman.schemas.formats import StoredFormat

ROWS, COLUMNS = 75, 96


def packed(rows: np.ndarray, source: str, fmt: StoredFormat) -> Buffer:
    size = packed_size(fmt, ROWS, COLUMNS)
    target = Arena(size).alloc(size, "test")
    conversion.pack_rows(rows, source, target, fmt, COLUMNS)
    return target


@pytest.mark.parametrize(("source", "fmt"), [("q4_0", "q8_0"), ("q8_0", "q4_0"), ("q8_0", "q8"), ("q8_0", "q4")])
@pytest.mark.parametrize("step", [1, 2**14, 2**22])
def test_steps_do_not_show(source: str, fmt: StoredFormat, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(1).normal(size=(ROWS, COLUMNS)).astype(np.float32)
    blocks = quantise(values, source)
    whole = packed(dequantise(blocks, source), "f32", fmt)
    monkeypatch.setattr(conversion, "STEP_BYTES", step)
    assert bytes(packed(blocks, source, fmt)) == bytes(whole)


@pytest.mark.parametrize("fmt", ["q8_0", "q4_0"])
def test_the_same_format_keeps_every_value(fmt: StoredFormat) -> None:
    values = np.random.default_rng(2).normal(size=(ROWS, COLUMNS)).astype(np.float32)
    blocks, found = quantise(values, fmt), np.empty((ROWS, COLUMNS), np.float32)
    unpack(packed(blocks, fmt, fmt), fmt, found.data, ROWS, COLUMNS)
    assert np.array_equal(found, dequantise(blocks, fmt))
    assert np.array_equal(conversion.rows_as_f32(blocks, fmt, COLUMNS), found)
