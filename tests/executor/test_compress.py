"""Groups of 64 under a scale and a minimum, of 4 and of 8 bits, against numpy."""

import numpy as np
import pytest
from block_oracle import GROUPS, panel_groups, quantised, restored

from helmsman.executor import _kernels as kernels
from helmsman.executor._kernels import Arena, Buffer, Pool

SHAPES = ((16, 64), (5, 7), (33, 130), (48, 200))
Values = np.ndarray[tuple[int, ...], np.dtype[np.float32]]


def _bytes(buffer: Buffer) -> bytes:
    return bytes(memoryview(buffer))


def _buffer(size: int) -> Buffer:
    return Arena(size + 64).alloc(size, "test")


def _codes(fmt: "kernels.StoredFormat") -> int:
    return 255 if fmt == "q8" else 15


def _samples(rows: int, columns: int) -> list[Values]:
    rng = np.random.default_rng(rows * columns)
    normal = rng.standard_normal((rows, columns)).astype(np.float32)
    huge = np.where(normal > 0, np.float32(3e38), np.float32(-3e38)).astype(np.float32)
    offset = (60000 + normal).astype(np.float32)
    return [normal * 0.02, normal * 1e-7, normal * 1e4, huge, offset, np.full_like(normal, 0.1)]


@pytest.mark.parametrize("fmt", GROUPS)
@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_values_are_within_half_a_step(rows: int, columns: int, fmt: "kernels.StoredFormat") -> None:
    values = _samples(rows, columns)[0]
    found = restored(quantised(values, fmt), fmt, rows, columns)
    codes = _codes(fmt)
    for first in range(0, columns, 64):
        group = values[:, first : first + 64]
        step = (group.max(1) - group.min(1)) / codes
        bound = step * 0.5 + codes * step * 2.0**-11 + np.abs(group).max(1) * 2.0**-10
        assert (np.abs(found[:, first : first + 64] - group).max(1) <= bound).all()


@pytest.mark.parametrize("fmt", GROUPS)
@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_quantising_again_changes_nothing(rows: int, columns: int, fmt: "kernels.StoredFormat") -> None:
    for values in _samples(rows, columns):
        once = quantised(values, fmt)
        found = restored(once, fmt, rows, columns)
        assert np.isfinite(found.astype(np.float16)).all()
        bits = 8 if fmt == "q8" else 4
        np.testing.assert_array_equal(found, panel_groups(_bytes(once), bits, rows, columns))
        assert _bytes(quantised(found, fmt)) == _bytes(once)


@pytest.mark.parametrize("fmt", GROUPS)
def test_constants_that_f16_has_are_exact(fmt: "kernels.StoredFormat") -> None:
    for value in (0.0, -0.5, 65504.0, 2.0**-24):
        values = np.full((16, 70), value, np.float32)
        np.testing.assert_array_equal(restored(quantised(values, fmt), fmt, 16, 70), values)


@pytest.mark.parametrize("fmt", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("isa", kernels.supported_isas())
def test_decompression_gives_what_packing_the_values_gives(isa: str, fmt: "kernels.Format") -> None:
    before = kernels.isa()
    kernels.select_isa(isa)
    try:
        for rows, columns in SHAPES:
            padded = -(-rows // 16) * 16
            for values in _samples(rows, columns):
                packed = quantised(values, "q4")
                size = kernels.packed_size(fmt, rows, columns)
                target, expected = _buffer(size), _buffer(size)
                kernels.decompress(Pool([0, 0]), packed, target, fmt, rows, columns)
                whole = np.zeros((padded, columns), np.float32)
                whole[:rows] = restored(packed, "q4", rows, columns)
                kernels.pack(whole, "f32", expected, fmt, padded, columns)
                assert _bytes(target) == _bytes(expected)
    finally:
        kernels.select_isa(before)


@pytest.mark.parametrize("fmt", ["f16", "q8", "q4"])
def test_rows_in_sixteens_are_one_range_of_bytes(fmt: "kernels.StoredFormat") -> None:
    values = _samples(64, 100)[0]
    whole, part = (_buffer(kernels.packed_size(fmt, rows, 100)) for rows in (64, 32))
    kernels.pack(values, "f32", whole, fmt, 64, 100)
    kernels.pack(values[16:48], "f32", part, fmt, 32, 100)
    begin, end = (kernels.packed_size(fmt, rows, 100) for rows in (16, 48))
    assert _bytes(whole)[begin:end] == _bytes(part)
