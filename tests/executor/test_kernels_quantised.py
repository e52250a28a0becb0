"""Linear layers in quantised formats against exact arithmetic, for every instruction set this processor has."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

import numpy as np
import pytest
from bf16_rounding import nearest_bf16
from block_oracle import BLOCKS, QUANTISED, Floats, packed, quantised, random_blocks, restored
from together import together

from helmsman.executor import _kernels as kernels
from helmsman.executor._kernels import Buffer, Pool

if TYPE_CHECKING:
    from helmsman.schemas.formats import Precision, StoredFormat

SHAPES = {"q8_0": (37, 96), "q4_0": (50, 160), "q4_k": (37, 512), "q6_k": (20, 768), "q8": (37, 97), "q4": (50, 200),
          "mxfp4": (50, 160)}  # fmt: skip
AMX = [name for name in (*kernels.supported_isas(), *kernels.emulated_isas()) if name.startswith("amx")]
TOKENS = (*range(1, 18), 23, 40)
STEPS: dict[Precision, float] = {"f32": np.inf, "int16": 32767, "int8": 127}
"""Whole numbers up to a run's largest magnitude."""


@pytest.fixture(scope="module")
def pools() -> tuple[Pool, ...]:
    cpus = sorted(os.sched_getaffinity(0))
    return (Pool(cpus[:1]), Pool([cpus[0], cpus[-1]]), Pool([cpus[0], cpus[-1], cpus[0]]))


@pytest.fixture(params=STEPS)
def precision(request: pytest.FixtureRequest) -> Precision:
    chosen: Precision = request.param
    return chosen


def product(pool: Pool, weights: Buffer, fmt: StoredFormat, rows: int, x: Floats, precision: Precision) -> Floats:
    y = np.full((len(x), rows), np.nan, np.float32)
    kernels.linear(pool, fmt, weights, rows, x.shape[1], np.ascontiguousarray(x), y, len(x), precision)
    return y


def magnitudes(weights: Buffer, fmt: StoredFormat, rows: int, columns: int) -> Floats:
    """A bound of |scale code| + |minimum|: values less their group's least, which is that or above."""
    values = np.abs(restored(weights, fmt, rows, columns))
    width = 64 if fmt in ("q8", "q4") else 32
    padded = np.pad(values, ((0, 0), (0, -columns % width))).reshape(rows, -1, width)
    return np.repeat(3 * padded.max(2), width, 1)[:, :columns]


def check(pool: Pool, weights: Buffer, fmt: StoredFormat, rows: int, x: Floats, precision: Precision) -> None:
    """csrc/kernels/kernels.h: half a step of a run's largest |x| times the sum of weights, and roundings of sums."""
    columns = x.shape[1]
    exact_w = restored(weights, fmt, rows, columns).astype(np.float64)
    runs = np.pad(np.abs(x).astype(np.float64), ((0, 0), (0, -columns % 32))).reshape(len(x), -1, 32)
    largest = np.repeat(runs.max(2), 32, 1)[:, :columns]
    sums = np.abs(x).astype(np.float64) @ magnitudes(weights, fmt, rows, columns).T
    rounding = largest @ np.abs(exact_w).T / (2 * STEPS[precision]) * 1.001
    roundings = columns + 2 if precision == "f32" else runs.shape[1] + 8
    bound = rounding + roundings * 2.0**-22 * sums + 1e-30
    error = np.abs(product(pool, weights, fmt, rows, x, precision) - x.astype(np.float64) @ exact_w.T)
    assert (error <= bound).all(), (error / bound).max()


@pytest.mark.parametrize("fmt", QUANTISED)
def test_products_equal_exact_arithmetic(
    word_isa: str, fmt: StoredFormat, precision: Precision, pools: tuple[Pool, ...]
) -> None:
    rows, columns = SHAPES[fmt]
    rng = np.random.default_rng(rows)
    weights = quantised(rng.standard_normal((rows, columns)).astype(np.float32), fmt)
    for tokens in TOKENS:
        x = rng.standard_normal((tokens, columns)).astype(np.float32) * np.float32(10)
        x[:, :: columns // 3] *= 300
        check(pools[tokens % len(pools)], weights, fmt, rows, x, precision)


@pytest.mark.parametrize("isa", AMX, indirect=True)
def test_tiles_meet_codes_of_four_bits_as_early_as_weights_in_bf16(isa: str) -> None:
    assert [kernels.product_kind("q4_0", tokens, "bf16") for tokens in (9, 10)] == ["words", "pairs"]
    assert [kernels.product_kind("bf16", tokens, "bf16") for tokens in (9, 10)] == ["floats", "pairs"]
    assert kernels.product_kind("q4_0", 10, "int16") == "words"
    assert kernels.product_kind("q8_0", 10, "bf16") == ("pairs" if isa == "amx-emulated" else "words")


@together("fmt", (*QUANTISED, "mxfp4"))
def test_bf16_products_round_dequantised_weights_to_bf16(isa: str, fmt: StoredFormat, pools: tuple[Pool, ...]) -> None:
    """Every instruction set multiplies x and dequantised weights rounded to bf16, in any shape. A kernel may compute a
    weight that differs in f32's last bit, so that it rounds to either neighbour: `below` or `above`."""
    rng = np.random.default_rng(5)
    block = BLOCKS.get(fmt, (32, 0))[0]
    for (rows, columns), tokens in (
        ((50, 2 * block), 40),
        ((16, 256), 300),
        ((37, 2304), 18),
        ((41, 2304), 270),
        ((50, 512), 11),
    ):
        if tokens == 11 and kernels.product_kind(fmt, tokens, "bf16") == "words":
            continue  # few tokens are rounded to 16 bits, but where tiles meet codes of four bits
        weights = quantised(rng.standard_normal((rows, columns)).astype(np.float32), fmt)
        values = restored(weights, fmt, rows, columns).astype(np.float64)
        below, above = (nearest_bf16(values * factor).astype(np.float64) for factor in (1 - 2**-22, 1 + 2**-22))
        x = rng.standard_normal((tokens, columns)).astype(np.float32)
        assert kernels.product_kind(fmt, tokens, "bf16") in ("rounded", "pairs")
        y = product(pools[tokens % len(pools)], weights, fmt, rows, x, "bf16")
        rounded_x = nearest_bf16(x).astype(np.float64)
        magnitude_sums = np.abs(rounded_x) @ np.abs(above).T
        tie_error = np.abs(rounded_x) @ np.abs(above - below).T
        bound = (columns + 2) * 2.0**-23 * magnitude_sums + tie_error
        error = np.abs(y - rounded_x @ above.T)
        assert (error <= bound).all(), (error / bound).max()


@pytest.mark.parametrize("fmt", QUANTISED)
def test_one_block_and_many(word_isa: str, fmt: StoredFormat, precision: Precision, pools: tuple[Pool, ...]) -> None:
    rng = np.random.default_rng(9)
    for blocks, (rows, tokens) in itertools.product((1, 9), ((1, 33), (16, 6), (49, 1), (49, 33))):
        columns = blocks * BLOCKS.get(fmt, (64, 0))[0]
        weights = quantised(rng.standard_normal((rows, columns)).astype(np.float32), fmt)
        check(pools[1], weights, fmt, rows, rng.standard_normal((tokens, columns)).astype(np.float32), precision)


@together("fmt", tuple(BLOCKS))
def test_every_bit_of_gguf_blocks_counts(
    word_isa: str, fmt: StoredFormat, precision: Precision, pools: tuple[Pool, ...]
) -> None:
    """Random bits: negative scales and all codes. One column of x at a time gives the weights back."""
    columns = BLOCKS[fmt][0]
    weights = packed(random_blocks(fmt, 20, columns, 7), fmt, fmt, 20, columns)
    values = restored(weights, fmt, 20, columns)
    tolerance = 2.0**-22 * magnitudes(weights, fmt, 20, columns).max()
    for first in range(0, columns, 16):
        for tokens in (1, 16, 32):
            x = np.zeros((tokens, columns), np.float32)
            chosen = (first + np.arange(tokens)) % columns
            x[np.arange(tokens), chosen] = -2.0
            found = product(pools[0], weights, fmt, 20, x, precision)
            np.testing.assert_allclose(found, -2 * values[:, chosen].T, rtol=0, atol=2 * tolerance)


@together("fmt", QUANTISED)
def test_largest_codes_and_activations_do_not_overflow(
    word_isa: str, fmt: StoredFormat, precision: Precision, pools: tuple[Pool, ...]
) -> None:
    rows, columns = 18, 512
    weights = quantised(np.full((rows, columns), -60000.0, np.float32), fmt)
    for tokens in (1, 8, 24):
        for factor in (1.0, -1.0, 1e30):
            check(pools[0], weights, fmt, rows, np.full((tokens, columns), factor, np.float32), precision)


def whole_weights(fmt: StoredFormat, rows: int, columns: int) -> Buffer:
    """Random weights under scales of one."""
    if fmt in BLOCKS:
        return packed(random_blocks(fmt, rows, columns, 11, 1.0), fmt, fmt, rows, columns)
    if fmt == "mxfp4":
        levels = np.array([0, 1, 2, 3, 4, 6, 8, 12])
        signs = np.random.default_rng(13).choice([-1, 1], (rows, columns))
        values = np.random.default_rng(11).choice(levels, (rows, columns)) * signs
        values[:, ::32], values[0] = 12, 12  # every run has the largest, and sums of the first row are as large as any
        return quantised(values.astype(np.float32), fmt)
    top = 255 if fmt == "q8" else 15
    values = np.random.default_rng(11).integers(0, top, (rows, columns), endpoint=True)
    values[:, ::32], values[:, 1::32] = 0, top  # every group has the least and the largest
    return quantised(values.astype(np.float32), fmt)


@pytest.mark.parametrize("fmt", (*QUANTISED, "mxfp4"))
def test_sums_of_bytes_are_exact(word_isa: str, fmt: StoredFormat, pools: tuple[Pool, ...]) -> None:
    """Whole numbers of 8 bits under scales of one give the same whole number whatever multiplies them."""
    rows, columns = 37, 256 if fmt in (*BLOCKS, "mxfp4") else 200
    weights, rng = whole_weights(fmt, rows, columns), np.random.default_rng(12)
    exact_w = restored(weights, fmt, rows, columns).astype(np.float64)
    for tokens in (17, 19, 23, 25, 40):
        x = rng.integers(-127, 127, (tokens, columns), endpoint=True)
        x[:, ::32], x[0] = 127, 127  # of every run, so that its scale is one
        found = product(pools[tokens % len(pools)], weights, fmt, rows, x.astype(np.float32), "int8")
        np.testing.assert_array_equal(found, x @ exact_w.T)


@together("fmt", QUANTISED)
def test_zeros_and_tiny_runs_are_zero(
    word_isa: str, fmt: StoredFormat, precision: Precision, pools: tuple[Pool, ...]
) -> None:
    weights = quantised(np.ones((16, 256), np.float32), fmt)
    for value in (0.0, 1e-31):
        for tokens in (1, 20):
            y = product(pools[0], weights, fmt, 16, np.full((tokens, 256), value, np.float32), precision)
            assert (np.abs(y) <= 260 * value).all()


@together("fmt", QUANTISED)
def test_what_is_no_number_reaches_every_row(
    word_isa: str, fmt: StoredFormat, precision: Precision, pools: tuple[Pool, ...]
) -> None:
    rng = np.random.default_rng(8)
    weights = quantised(1 + rng.random((20, 256)).astype(np.float32), fmt)
    for broken, tokens in itertools.product((np.nan, np.inf, -np.inf), (1, 5, 30)):
        x = np.ones((tokens, 256), np.float32)
        x[-1, 100] = broken
        y = product(pools[0], weights, fmt, 20, x, precision)
        assert not np.isfinite(y[-1]).any()
        assert np.isfinite(y[:-1]).all()


@pytest.mark.parametrize("fmt", QUANTISED)
def test_instruction_sets_agree_on_streamed_tokens(fmt: StoredFormat, pools: tuple[Pool, ...]) -> None:
    """Spans are exact, and activations are rounded alike up to ties."""
    rng = np.random.default_rng(9)
    weights = quantised(rng.standard_normal((40, 512)).astype(np.float32), fmt)
    x = rng.standard_normal((2, 512)).astype(np.float32)
    results, before = [], kernels.isa()
    for name in kernels.supported_isas():
        kernels.select_isa(name)
        results.append(product(pools[0], weights, fmt, 40, x, "int16"))
    kernels.select_isa(before)
    for y in results:
        np.testing.assert_allclose(y, results[-1], rtol=0, atol=2e-3)


ALIKE = [
    names
    for lanes in (("neon",), ("avx2", "avxvnni"))
    if len(names := [isa for isa in (*kernels.supported_isas(), *kernels.emulated_isas()) if isa.startswith(lanes)]) > 1
]
"""Tables with lanes of one width, whose sums of bytes are scaled in one order."""


@pytest.mark.parametrize("names", ALIKE, ids=" ".join)
@pytest.mark.parametrize("fmt", QUANTISED)
def test_tables_of_one_width_sum_bytes_alike(fmt: StoredFormat, names: list[str], pools: tuple[Pool, ...]) -> None:
    """Whichever instructions make them, two rows by two tokens or one by one: sums are equal to the bit, but of q8,
    whose minima make up for what is taken off codes that have to be signed."""
    rng = np.random.default_rng(10)
    rows, columns = SHAPES[fmt]
    weights = quantised(rng.standard_normal((rows, columns)).astype(np.float32), fmt)
    before = kernels.isa()
    for tokens in (13, 17, 24, 40):
        x = rng.standard_normal((tokens, columns)).astype(np.float32)
        results = []
        for name in names:
            kernels.select_isa(name)
            results.append(product(pools[1], weights, fmt, rows, x, "int8"))
        most = 1e-6 * np.abs(results[-1]).max() if fmt == "q8" else 0.0
        for y in results:
            np.testing.assert_allclose(y, results[-1], rtol=0, atol=most)
    kernels.select_isa(before)


def test_what_follows_is_left_alone(word_isa: str, pools: tuple[Pool, ...]) -> None:
    for fmt in QUANTISED:
        weights = quantised(np.ones((5, 256), np.float32), fmt)
        for tokens in (1, 3, 30):
            y = np.full(tokens * 5 + 64, -1.0, np.float32)
            kernels.linear(pools[1], fmt, weights, 5, 256, np.ones((tokens, 256), np.float32), y, tokens)
            np.testing.assert_allclose(y[: tokens * 5], 256, rtol=0.01)
            assert (y[tokens * 5 :] == -1).all()
