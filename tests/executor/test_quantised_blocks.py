"""GGUF's blocks: their exact values, its reference rounding, and what is made of both when they are packed."""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np
import pytest
from block_oracle import (
    BLOCKS,
    QUANTISED,
    Floats,
    block_values,
    packed,
    quantised,
    random_blocks,
    reference_blocks,
    restored,
)
from together import together

from helmsman.executor import _kernels as kernels
from helmsman.executor._kernels import Arena, Buffer, CopyEngine

if TYPE_CHECKING:
    from helmsman.schemas.formats import StoredFormat

GGUF = tuple(BLOCKS)


def looked_up(table: Buffer, fmt: StoredFormat, rows: int, columns: int) -> bytes:
    """Every row of a packed matrix, row-major."""
    size = kernels.packed_size(fmt, 16, columns) // 16
    ids = Arena(4 * rows + 64).alloc(4 * rows, "ids")
    np.frombuffer(memoryview(ids), np.int32)[:] = range(rows)
    target = Arena(rows * size + 64).alloc(rows * size, "rows")
    engine = CopyEngine(1e12, 0.0, -1)
    engine.wait(engine.submit_lookup(target, 0, table, fmt, rows, columns, ids, rows))
    return bytes(memoryview(target))


@together("fmt", GGUF)
@together("rows", [1, 16, 37])
def test_blocks_are_packed_and_looked_up_bit_for_bit(fmt: StoredFormat, rows: int) -> None:
    columns = 2 * BLOCKS[fmt][0]
    blocks = random_blocks(fmt, rows, columns, rows)
    table = packed(blocks, fmt, fmt, rows, columns)
    assert table.size == -(-rows // 16) * 16 * blocks.shape[1]
    np.testing.assert_array_equal(restored(table, fmt, rows, columns), block_values(fmt, blocks))
    assert looked_up(table, fmt, rows, columns) == blocks.tobytes()
    plain = packed(blocks, fmt, "f32", rows, columns)
    np.testing.assert_array_equal(restored(plain, "f32", rows, columns), block_values(fmt, blocks))


@pytest.mark.parametrize("fmt", ["q8_0", "q4_0"])
def test_rounding_is_the_references(fmt: StoredFormat) -> None:
    rng = np.random.default_rng(1)
    for scale in (1e-7, 0.02, 1.0, 1e4):
        values = (rng.standard_normal((20, 128)) * scale).astype(np.float32)
        values[3, 32:64] = 0
        values[4] = np.round(values[4] / scale * 2) / 2 * scale  # ties, and several values of the same magnitude
        rows, columns = values.shape
        assert looked_up(quantised(values, fmt), fmt, rows, columns) == reference_blocks(fmt, values).tobytes()


@pytest.mark.parametrize(
    ("fmt", "most"),
    [
        ("q8_0", 0.0055),
        ("q4_0", 0.088),
        ("q4_k", 0.073),
        ("q6_k", 0.0185),
        ("q8", 0.0055),
        ("q4", 0.092),
        ("mxfp4", 0.13),
    ],
)
def test_the_error_of_normal_weights(fmt: StoredFormat, most: float) -> None:
    """Root mean square relative to the weights'; the searches for scales keep q4_k and q6_k where they are."""
    values = np.random.default_rng(2).standard_normal((32, 512)).astype(np.float32) * np.float32(0.03)
    error = restored(quantised(values, fmt), fmt, 32, 512) - values
    assert np.sqrt((error**2).mean()) < most * 0.03


@pytest.mark.parametrize(
    ("fmt", "digest"),
    [
        ("q8_0", "935ce46f5c96783a"),
        ("q4_0", "89463f61578b51ab"),
        ("q4_k", "2e542cefe4a38f4f"),
        ("q6_k", "bbd6a99b1bd9862a"),
        ("q8", "bae06d613aa29475"),
        ("q4", "868359f4b36de8e1"),
    ],
)
def test_bytes_are_the_same_on_every_processor(fmt: StoredFormat, digest: str) -> None:
    """As x86-64 and arm64 make them: no product is fused with a sum."""
    rng = np.random.default_rng(11)
    values = rng.random((64, 512), np.float32) * 2 - 1
    uneven = np.ldexp(values, rng.integers(-20, 10, (64, 16)).astype(np.int32).repeat(32, 1))
    assert sha256(bytes(memoryview(quantised(uneven, fmt)))).hexdigest()[:16] == digest


@pytest.mark.parametrize("fmt", QUANTISED)
def test_extreme_values_are_clamped(fmt: StoredFormat) -> None:
    """What is beyond f16 counts as its largest; zeros, the smallest numbers and constants survive."""
    rng = np.random.default_rng(3)
    normal = rng.standard_normal((17, 256)).astype(np.float32)
    huge = np.where(normal > 1, np.float32(3e38), np.float32(-3e38)).astype(np.float32)
    for values, clean in (
        (huge, np.clip(huge, -65504, 65504)),
        (normal * 1e-42, None),
    ):
        found = restored(quantised(values.astype(np.float32), fmt), fmt, 17, 256)
        assert np.isfinite(found).all()
        if clean is not None:
            same = restored(quantised(clean.astype(np.float32), fmt), fmt, 17, 256)
            np.testing.assert_array_equal(found, same)
    zeros = np.zeros((17, 256), np.float32)
    np.testing.assert_array_equal(restored(quantised(zeros, fmt), fmt, 17, 256), zeros)


@pytest.mark.parametrize("fmt", QUANTISED)
def test_sources_of_sixteen_bits_are_quantised_like_f32(fmt: StoredFormat) -> None:
    values = np.random.default_rng(4).standard_normal((5, 256)).astype(np.float16)
    wide = quantised(values.astype(np.float32), fmt)
    assert bytes(memoryview(packed(values, "f16", fmt, 5, 256))) == bytes(memoryview(wide))


@pytest.mark.parametrize("fmt", GGUF)
def test_one_format_becomes_another_through_its_values(fmt: StoredFormat) -> None:
    blocks = random_blocks(fmt, 3, 512, 5)
    values: Floats = block_values(fmt, blocks)
    assert bytes(memoryview(packed(blocks, fmt, "q8", 3, 512))) == bytes(memoryview(quantised(values, "q8")))


def test_columns_are_whole_blocks() -> None:
    for fmt in GGUF:
        with pytest.raises(ValueError, match=rf"{fmt} has blocks of {BLOCKS[fmt][0]} columns"):
            kernels.packed_size(fmt, 16, BLOCKS[fmt][0] + 16)
    assert kernels.packed_size("q4", 16, 33) == 16 * (4 + 32)
    with pytest.raises(ValueError, match="unknown format 'q5_0'; choose from f32, .*q4_k"):
        kernels.packed_size("q5_0", 16, 32)  # type: ignore[arg-type]
    small = Arena(64).alloc(64, "small")
    with pytest.raises(ValueError, match="target has 64 bytes"):
        kernels.pack(np.zeros((16, 32), np.float32), "f32", small, "q8_0", 16, 32)
    with pytest.raises(ValueError, match="source has"):
        packed(np.zeros(33, np.uint8), "q8_0", "f32", 1, 32)
