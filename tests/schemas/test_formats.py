"""Sizes of what is stored: blocks counted whole, rows of caches that share no group."""

import pytest

from helmsman.schemas.formats import KV_FORMATS, STORED_FORMATS, block_of, is_plain, rows_size, same_size, size_of

BITS = {
    "f32": 32, "f16": 16, "bf16": 16, "q8_0": 8.5, "q4_0": 4.5, "q4_k": 4.5, "q6_k": 6.5625, "q8": 8.5, "q4": 4.5
}  # fmt: skip
"""A value's own bits, and its share of scales and minima."""


@pytest.mark.parametrize("fmt", STORED_FORMATS)
def test_bits_of_a_value(fmt):
    assert size_of(512 * 7, fmt) == 512 * 7 * BITS[fmt] / 8
    assert size_of(0, fmt) == 0


@pytest.mark.parametrize(("fmt", "values", "size"), [("q8_0", 32, 34), ("q4_k", 256, 144), ("q6_k", 256, 210)])
def test_blocks_are_counted_whole(fmt, values, size):
    assert [size_of(n, fmt) for n in (1, values, values + 1)] == [size, size, 2 * size]


def test_columns_of_gguf_formats_are_whole_blocks():
    assert {fmt: block_of(fmt) for fmt in STORED_FORMATS if block_of(fmt) > 1} == {
        "q8_0": 32, "q4_0": 32, "q4_k": 256, "q6_k": 256
    }  # fmt: skip


def test_groups_of_a_cache_never_cross_rows():
    assert rows_size(10, 128, "q8_0") == 10 * 4 * 34
    assert rows_size(10, 80, "q4") == 10 * (2 * 4 + 40)
    assert rows_size(3, 96, "f16") == 3 * 96 * 2
    assert set(KV_FORMATS) - {"q8_0"} == {fmt for fmt in STORED_FORMATS if is_plain(fmt)}


def test_a_measurement_stands_for_plain_formats_of_its_size():
    assert same_size("f16", "bf16") and same_size("q4_0", "q4_0")
    assert not same_size("f16", "f32") and not same_size("q4_0", "q4_k") and not same_size("q8_0", "q8")
