"""4-bit compression against numpy."""

import numpy as np
import pytest

from helmsman.executor import _kernels as kernels
from helmsman.executor._kernels import Arena, Buffer, Pool

SHAPES = ((16, 64), (5, 7), (33, 130), (48, 200))
Values = np.ndarray[tuple[int, ...], np.dtype[np.float32]]


def _bytes(buffer: Buffer) -> bytes:
    return bytes(memoryview(buffer))


def _buffer(size: int) -> Buffer:
    return Arena(size + 64).alloc(size, "test")


def _quantised(values: Values) -> Buffer:
    rows, columns = values.shape
    buffer = _buffer(kernels.packed_size("q4", rows, columns))
    kernels.pack(values, "f32", buffer, "q4", rows, columns)
    return buffer


def _restored(buffer: Buffer, rows: int, columns: int) -> Values:
    values = np.zeros((rows, columns), np.float32)
    kernels.unpack(buffer, "q4", values, rows, columns)
    return values


def _decoded(data: bytes, rows: int, columns: int) -> Values:
    """The layout, read by numpy."""
    out = np.zeros((-(-rows // 16) * 16, columns), np.float32)
    raw, at = np.frombuffer(data, np.uint8), 0
    for panel in range(0, len(out), 16):
        for first in range(0, columns, 64):
            count = min(64, columns - first)
            scale, low = raw[at : at + 64].view(np.float16).astype(np.float32).reshape(2, 16)
            codes = raw[at + 64 : at + 64 + 8 * count].reshape(count, 8)
            both = np.concatenate([codes & 15, codes >> 4], axis=1).T
            out[panel : panel + 16, first : first + count] = both * scale[:, None] + low[:, None]
            at += 64 + 8 * count
    assert at == len(data)
    return out[:rows]


def _samples(rows: int, columns: int) -> list[Values]:
    rng = np.random.default_rng(rows * columns)
    normal = rng.standard_normal((rows, columns)).astype(np.float32)
    huge = np.where(normal > 0, np.float32(np.inf), np.float32(-3e38)).astype(np.float32)
    broken = np.where(normal > 1, np.float32(np.nan), normal).astype(np.float32)
    offset = (60000 + normal).astype(np.float32)
    return [normal * 0.02, normal * 1e-7, normal * 1e4, huge, broken, offset, np.full_like(normal, 0.1)]


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_values_are_within_half_a_step(rows: int, columns: int) -> None:
    values = _samples(rows, columns)[0]
    restored = _restored(_quantised(values), rows, columns)
    for first in range(0, columns, 64):
        group = values[:, first : first + 64]
        step = (group.max(1) - group.min(1)) / 15
        bound = step * 0.5 + 15 * step * 2.0**-11 + np.abs(group).max(1) * 2.0**-10
        assert (np.abs(restored[:, first : first + 64] - group).max(1) <= bound).all()


@pytest.mark.parametrize(("rows", "columns"), SHAPES)
def test_quantising_again_changes_nothing(rows: int, columns: int) -> None:
    for values in _samples(rows, columns):
        once = _quantised(values)
        restored = _restored(once, rows, columns)
        assert np.isfinite(restored.astype(np.float16)).all()
        np.testing.assert_array_equal(restored, _decoded(_bytes(once), rows, columns))
        assert _bytes(_quantised(restored)) == _bytes(once)


def test_constants_that_f16_has_are_exact() -> None:
    for value in (0.0, -0.5, 65504.0, 2.0**-24):
        values = np.full((16, 70), value, np.float32)
        np.testing.assert_array_equal(_restored(_quantised(values), 16, 70), values)


@pytest.mark.parametrize("fmt", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("isa", kernels.supported_isas())
def test_decompression_gives_what_packing_the_values_gives(isa: str, fmt: "kernels.Format") -> None:
    before = kernels.isa()
    kernels.select_isa(isa)
    try:
        for rows, columns in SHAPES:
            padded = -(-rows // 16) * 16
            for values in _samples(rows, columns):
                packed = _quantised(values)
                size = kernels.packed_size(fmt, rows, columns)
                target, expected = _buffer(size), _buffer(size)
                kernels.decompress(Pool([0, 0]), packed, target, fmt, rows, columns)
                whole = np.zeros((padded, columns), np.float32)
                whole[:rows] = _restored(packed, rows, columns)
                kernels.pack(whole, "f32", expected, fmt, padded, columns)
                assert _bytes(target) == _bytes(expected)
    finally:
        kernels.select_isa(before)


@pytest.mark.parametrize("fmt", ["f16", "q4"])
def test_rows_in_sixteens_are_one_range_of_bytes(fmt: "kernels.StoredFormat") -> None:
    values = _samples(64, 100)[0]
    whole, part = (_buffer(kernels.packed_size(fmt, rows, 100)) for rows in (64, 32))
    kernels.pack(values, "f32", whole, fmt, 64, 100)
    kernels.pack(values[16:48], "f32", part, fmt, 32, 100)
    begin, end = (kernels.packed_size(fmt, rows, 100) for rows in (16, 48))
    assert _bytes(whole)[begin:end] == _bytes(part)
