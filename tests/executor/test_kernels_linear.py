"""Packing and linear layers against exact arithmetic, for every instruction set this processor has."""

import os
from collections.abc import Iterator
from itertools import product as product_of
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from bf16_rounding import nearest_bf16
from numpy.typing import NDArray
from together import together

from helmsman.executor import _kernels as kernels
from helmsman.executor._kernels import Arena, Buffer, Pool
from helmsman.schemas.formats import FORMATS, Format

if TYPE_CHECKING:
    from helmsman.executor._kernels import InputKind
    from helmsman.schemas.formats import Precision

Floats = NDArray[np.float32]
UNIT = 2.0**-24


@pytest.fixture(scope="module")
def pools() -> tuple[Pool, ...]:
    cpus = sorted(os.sched_getaffinity(0))
    return (Pool(cpus[:1]), Pool([cpus[0], cpus[-1]]), Pool([cpus[0], cpus[-1], cpus[0]]))


def rounded(values: Floats, fmt: Format) -> Floats:
    """Return the values after storing them in `fmt` and reading them back."""
    if fmt == "f32":
        return values
    if fmt == "f16":
        return values.astype(np.float16).astype(np.float32)
    return nearest_bf16(values)


def packed(values: Floats, fmt: Format) -> Buffer:
    rows, columns = values.shape
    size = kernels.packed_size(fmt, rows, columns)
    target = Arena(size).alloc(size, "weights")
    kernels.pack(values, "f32", target, fmt, rows, columns)
    return target


def check(pool: Pool, weights: Floats, fmt: Format, x: Floats, precision: "Precision" = "f32") -> None:
    """The error is at most (terms + 2) roundings of the sum of magnitudes (csrc/kernels/kernels.h), of x as rounded."""
    rows, columns = weights.shape
    y = np.full((len(x), rows), np.nan, np.float32)
    kernels.linear(pool, fmt, packed(weights, fmt), rows, columns, x, y, len(x), precision)
    if kernels.product_kind(fmt, len(x), precision) in ("rounded", "pairs"):
        x = rounded(x, "bf16")
    exact_w = rounded(weights, fmt).astype(np.float64)
    exact = x.astype(np.float64) @ exact_w.T
    bound = (columns + 2) * UNIT * (np.abs(x).astype(np.float64) @ np.abs(exact_w).T) + 1e-44
    assert (np.abs(y - exact) <= bound).all()


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (15, 3), (16, 16), (37, 53), (100, 401), (64, 576), (35, 1093)])
def test_linear_equals_exact_arithmetic(
    base_isa: str, fmt: Format, rows: int, columns: int, pools: tuple[Pool, ...]
) -> None:
    rng = np.random.default_rng([rows, columns])
    weights = rng.standard_normal((rows, columns), np.float32)
    for tokens in (1, 2, 3, 6, 7, 8, 12, 13, 16, 17, 25, 100, 300):
        x = rng.standard_normal((tokens, columns), np.float32)
        check(pools[tokens % len(pools)], weights, fmt, x)


def test_bf16_weights_meet_bf16_activations_where_that_is_asked_for(isa: str, pools: tuple[Pool, ...]) -> None:
    rng = np.random.default_rng(12)
    for rows, columns in ((15, 3), (100, 401), (35, 1093)):
        weights = rng.standard_normal((rows, columns), np.float32)
        for tokens in (1, 12, 17, 40, 300):
            check(
                pools[tokens % len(pools)], weights, "bf16", rng.standard_normal((tokens, columns), np.float32), "bf16"
            )
    assert kernels.product_kind("bf16", 17, "bf16") in ("rounded", "pairs")


def test_every_small_token_count(base_isa: str, pools: tuple[Pool, ...]) -> None:
    rng = np.random.default_rng(41)
    weights = rng.standard_normal((35, 67), np.float32)
    for tokens in range(1, 41):
        check(pools[1], weights, "f16", rng.standard_normal((tokens, 67), np.float32))


@together("fmt", FORMATS)
def test_extreme_values(base_isa: str, fmt: Format, pools: tuple[Pool, ...]) -> None:
    """Denormals, the largest numbers of f16, and cancellation."""
    smallest, largest = np.float32(2.0**-24), np.float32(65504.0)
    weights = np.tile(np.array([smallest, 3 * smallest, largest, -largest, 1.0, 2.0**-14], np.float32), (17, 5))
    rng = np.random.default_rng(1)
    for tokens in (1, 5, 40):
        check(pools[0], weights, fmt, rng.standard_normal((tokens, 30), np.float32))


def test_linear_leaves_what_follows_alone(base_isa: str, pools: tuple[Pool, ...]) -> None:
    weights = packed(np.ones((5, 7), np.float32), "f32")
    for tokens in (1, 3, 50):
        y = np.full(tokens * 5 + 64, -1.0, np.float32)
        kernels.linear(pools[1], "f32", weights, 5, 7, np.ones((tokens, 7), np.float32), y, tokens)
        assert (y[: tokens * 5] == 7).all()
        assert (y[tokens * 5 :] == -1).all()


@pytest.mark.parametrize(
    ("rows", "columns", "tokens"), [(16, 64, 70), (80, 64, 70), (1000, 64, 70), (72, 1100, 170), (120, 1024, 170)]
)
def test_threads_that_divide_a_product_compute_what_one_does(
    isa: str, rows: int, columns: int, tokens: int, pools: tuple[Pool, ...]
) -> None:
    """Three threads on two processors never get on alike: who computes a panel, with which other, changes no bit."""
    rng = np.random.default_rng(rows)
    weights = packed(rng.standard_normal((rows, columns), np.float32), "bf16")
    x = rng.standard_normal((tokens, columns), np.float32)
    by_one = None
    for pool in pools * (20 if columns < 100 else 3):
        y = np.full((tokens, rows), np.nan, np.float32)
        kernels.linear(pool, "bf16", weights, rows, columns, x, y, tokens, "bf16")
        by_one = y if by_one is None else by_one
        assert (y == by_one).all()


def test_threads_take_every_item_of_a_job_once(pools: tuple[Pool, ...]) -> None:
    """Also where there are fewer items than threads, or none, and where one thread is jobs ahead of another."""
    jobs = [0, 1, 2, 7, 1, 64, 0, 1000, 3, 2**20] + [5, 0, 1] * 3000
    for pool in pools:
        for least, most in ((1, 1), (2, 2**20), (8, 16)):
            assert set(kernels.times_taken(pool, jobs, least, most)) == {1}


def test_instruction_sets_agree(pools: tuple[Pool, ...]) -> None:
    rng = np.random.default_rng(3)
    weights = packed(rng.standard_normal((70, 300), np.float32), "f16")
    x = rng.standard_normal((20, 300), np.float32)
    results = []
    before = kernels.isa()
    for name in kernels.supported_isas():
        kernels.select_isa(name)
        y = np.zeros((20, 70), np.float32)
        kernels.linear(pools[0], "f16", weights, 70, 300, x, y, 20)
        results.append(y)
    kernels.select_isa(before)
    for y in results:
        np.testing.assert_allclose(y, results[-1], rtol=0, atol=300 * UNIT * 60)


BF16_UNITS = [
    name
    for name in (*kernels.supported_isas(), *kernels.emulated_isas())
    if name.startswith(("amx", "avx512bf16", "neonbf16"))
]


def in_use(name: str) -> Iterator[str]:
    """The instruction set while a test runs."""
    before = kernels.isa()
    kernels.select_isa(name)
    yield name
    kernels.select_isa(before)


@pytest.fixture(params=BF16_UNITS)
def bf16_units(request: pytest.FixtureRequest) -> Iterator[str]:
    """The processor's, or their imitations: of tiles by AVX2, of AVX-512's pairs by AVX-512."""
    yield from in_use(request.param)


@pytest.fixture(params=[name for name in BF16_UNITS if name.startswith("amx")])
def tiles(request: pytest.FixtureRequest) -> Iterator[str]:
    """Those of them that are tiles."""
    yield from in_use(request.param)


def prompt_product(pool: Pool, weights: Floats, x: Floats) -> Floats:
    """Of weights kept in bf16."""
    (tokens, columns), rows = x.shape, len(weights)
    y = np.full((tokens, rows), np.nan, np.float32)
    kernels.linear(pool, "bf16", packed(weights, "bf16"), rows, columns, x, y, tokens, "bf16")
    return y


def rounded_to_odd(values: NDArray[np.float64]) -> Floats:
    """Return the neighbour in f32 whose last bit is set, for values that are not themselves f32."""
    nearest = values.astype(np.float32)
    smaller = np.where(np.abs(nearest) > np.abs(values), np.nextafter(nearest, np.float32(0)), nearest)
    return np.where(smaller == values, smaller, (smaller.view(np.uint32) | 1).view(np.float32))


def test_bf16_units_round_every_sum_as_the_manual_says(bf16_units: str, pools: tuple[Pool, ...]) -> None:
    """Bit for bit what the manual says of a pair: a fused product of its second numbers, then one of its first, to the
    nearest; arm64's units round the sum of both to odd."""
    rng = np.random.default_rng(6)
    weights, x = (rounded(rng.standard_normal((rows, 2), np.float32), "bf16") for rows in (50, 40))
    second = np.outer(x[:, 1], weights[:, 1])  # exact: 16 bits
    first = np.outer(x[:, 0].astype(np.float64), weights[:, 0].astype(np.float64))
    exact = first + second
    expected = rounded_to_odd(exact) if bf16_units.startswith("neon") else exact.astype(np.float32)
    np.testing.assert_array_equal(prompt_product(pools[1], weights, x), expected)


def tiled_sums(weights: Floats, x: Floats) -> Floats:
    """What the manual says of TDPBF16PS, run by run of 32 columns: even columns are summed up, and odd ones, then both
    sums, and what was there before. Every product is exact in f32."""
    total = np.zeros((len(x), len(weights)), np.float32)
    for first in range(0, weights.shape[1], 32):
        sums = np.zeros((2, *total.shape), np.float32)
        for column in range(first, min(first + 32, weights.shape[1])):
            sums[column % 2] += np.outer(x[:, column], weights[:, column])
        total += sums[0] + sums[1]
    return total


@pytest.mark.parametrize("columns", [1, 31, 33, 64, 256])
def test_tiles_add_as_the_manual_says(tiles: str, columns: int, pools: tuple[Pool, ...]) -> None:
    """Bit for bit, within the columns that tiles sum up before these sums are stored."""
    rng = np.random.default_rng(columns)
    weights, x = (rounded(rng.standard_normal((rows, columns), np.float32), "bf16") for rows in (50, 40))
    np.testing.assert_array_equal(prompt_product(pools[1], weights, x), tiled_sums(weights, x))


@together("tokens", [9, 10, 11, 13, 15, 16, 17, 18, 31, 32, 33, 63, 64, 65, 100, 200, 385, 800])
def test_bf16_units_take_any_number_of_tokens(bf16_units: str, tokens: int, pools: tuple[Pool, ...]) -> None:
    rng = np.random.default_rng(tokens)
    weights, x = (rng.standard_normal((rows, 77), np.float32) for rows in (53, tokens))
    check(pools[tokens % len(pools)], weights, "bf16", x, "bf16")


@pytest.mark.parametrize("rows", range(1, 41))
def test_bf16_units_take_any_shape_of_weights(bf16_units: str, rows: int, pools: tuple[Pool, ...]) -> None:
    rng = np.random.default_rng(rows)
    for columns in (1, 2, 31, 32, 33, 257, 2049):
        weights, x = (rng.standard_normal((count, columns), np.float32) for count in (rows, 35))
        check(pools[rows % len(pools)], weights, "bf16", x, "bf16")


@pytest.mark.parametrize("rows", [16, 41, 64])
def test_bf16_units_take_more_tokens_and_columns_than_caches_hold(
    bf16_units: str, rows: int, pools: tuple[Pool, ...]
) -> None:
    """Sums of one chunk of tokens, or reach of columns, are still to be written while those of the next are made."""
    rng = np.random.default_rng(rows)
    for tokens, columns in ((300, 2049), (530, 600), (257, 4200)):
        weights, x = (rng.standard_normal((count, columns), np.float32) for count in (rows, tokens))
        check(pools[0], weights, "bf16", x, "bf16")


def test_bf16_units_keep_the_bound_of_long_sums(bf16_units: str, pools: tuple[Pool, ...]) -> None:
    """Also where all terms have one sign and one size, so that every rounding counts."""
    rng = np.random.default_rng(8)
    for columns in (2, 3, 255, 1024, 4099):
        weights, x = (1 + rng.random((rows, columns), np.float32) for rows in (20, 33))
        check(pools[1], weights, "bf16", x, "bf16")


def test_bf16_units_round_activations_to_the_nearest_even(bf16_units: str, pools: tuple[Pool, ...]) -> None:
    x = np.random.default_rng(7).standard_normal((31, 67), np.float32) * np.float32(1e20)
    x[0, :4] = [1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-8 + 2.0**-20, -(1 + 2.0**-8)]
    np.testing.assert_array_equal(prompt_product(pools[1], np.eye(67, dtype=np.float32), x), rounded(x, "bf16"))


def test_bf16_units_take_subnormal_numbers_for_zero(bf16_units: str, pools: tuple[Pool, ...]) -> None:
    for weight, factor in ((2.0**-70, 2.0**-70), (2.0**-130, 2.0**100), (2.0**100, 2.0**-130)):
        weights, x = np.full((17, 3), weight, np.float32), np.full((20, 3), factor, np.float32)
        assert not prompt_product(pools[0], weights, x).any()


def test_bf16_units_pass_on_what_is_no_number(bf16_units: str, pools: tuple[Pool, ...]) -> None:
    x = np.ones((30, 33), np.float32)
    x[3, 32], x[7, 0] = np.nan, np.inf
    y = prompt_product(pools[2], np.ones((20, 33), np.float32), x)
    assert np.isnan(y[3]).all()
    assert (y[7] == np.inf).all()
    assert (np.delete(y, [3, 7], 0) == 33).all()


@pytest.mark.parametrize("source", FORMATS)
@pytest.mark.parametrize("target", FORMATS)
def test_pack_interleaves_and_rounds_to_nearest_even(source: Format, target: Format) -> None:
    bits = np.arange(0, 1 << 16, dtype=np.uint16)
    if source == "f16":
        with np.errstate(invalid="ignore"):  # arm64 tells of signalling NaNs
            values = bits.view(np.float16).astype(np.float32)
    elif source == "bf16":
        values = (bits.astype(np.uint32) << 16).view(np.float32)
    else:
        values = np.random.default_rng(5).standard_normal(1 << 16).astype(np.float32) * np.float32(1e-3)
    finite = np.isfinite(values) & (np.abs(values) < 6e4)
    values = np.where(finite, values, np.float32(0)).astype(np.float32)
    stored = np.where(finite, bits, np.uint16(0)) if source != "f32" else values
    rows, columns = 64, 1024
    size = kernels.packed_size(target, rows, columns)
    buffer = Arena(size).alloc(size, "weights")
    kernels.pack(np.ascontiguousarray(stored), source, buffer, target, rows, columns)
    found = unpacked(buffer, target).reshape(rows // 16, columns, 16).swapaxes(1, 2).reshape(rows, columns)
    np.testing.assert_array_equal(found, rounded(values, target).reshape(rows, columns))


def unpacked(buffer: Buffer, fmt: Format) -> Floats:
    if fmt == "f32":
        return np.frombuffer(memoryview(buffer), np.float32)
    if fmt == "f16":
        return np.frombuffer(memoryview(buffer), np.float16).astype(np.float32)
    return (np.frombuffer(memoryview(buffer), np.uint16).astype(np.uint32) << 16).view(np.float32)


def test_pack_pads_rows_with_zeros() -> None:
    size = kernels.packed_size("f16", 17, 3)
    assert size == 2 * 16 * 3 * 2
    buffer = Arena(size).alloc(size, "weights")
    np.frombuffer(memoryview(buffer), np.uint8)[:] = 255
    kernels.pack(np.ones((17, 3), np.float32), "f32", buffer, "f16", 17, 3)
    second = np.frombuffer(memoryview(buffer), np.float16).reshape(2, 3, 16)[1]
    assert (second[:, 0] == 1).all()
    assert (second[:, 1:] == 0).all()


def test_sizes_are_checked(pools: tuple[Pool, ...]) -> None:
    weights = packed(np.ones((16, 8), np.float32), "f32")
    x, y = np.ones((2, 8), np.float32), np.ones((2, 16), np.float32)
    for rows, columns, tokens in ((17, 8, 1), (16, 9, 1), (16, 8, 3), (0, 8, 1), (16, -1, 1), (1 << 39, 1 << 39, 1)):
        with pytest.raises(ValueError, match=r"needs|must be between|too large"):
            kernels.linear(pools[0], "f32", weights, rows, columns, x, y, tokens)
    with pytest.raises(ValueError, match="contiguous"):
        kernels.linear(pools[0], "f32", weights, 16, 8, np.ones((8, 2), np.float32).T, y, 2)
    with pytest.raises((ValueError, BufferError)):
        y.flags.writeable = False
        kernels.linear(pools[0], "f32", weights, 16, 8, x, y, 2)
    with pytest.raises(ValueError, match="target has"):
        kernels.pack(np.ones((32, 8), np.float32), "f32", weights, "f32", 32, 8)


def test_select_isa_refuses_the_unknown() -> None:
    assert kernels.supported_isas()[-1] == "portable"
    assert not set(kernels.supported_isas()) & set(kernels.emulated_isas())
    with pytest.raises(ValueError, match="sse9"):
        kernels.select_isa("sse9")


def test_time_linear_and_read_return_one_time_per_repeat(pools: tuple[Pool, ...]) -> None:
    weights = packed(np.ones((64, 64), np.float32), "f16")
    for tokens in (1, 4, 40):
        times = kernels.time_linear(pools[1], "f16", [weights, weights], 64, 64, tokens, 5)
        assert len(times) == 5
        assert all(seconds > 0 for seconds in times)
    for piece in (0, 64, 1024):
        assert len(kernels.time_read(pools[1], weights, 3, piece)) == 3
    with pytest.raises(ValueError, match="multiples of 64"):
        kernels.time_read(pools[0], weights, 1, 100)


@together("kind", ["floats", "tiled", "rounded", "words", "small_words", "bytes", "pairs"])
def test_the_peak_of_units_grows_with_the_rounds(isa: str, pools: tuple[Pool, ...], kind: "InputKind") -> None:
    """Registers hold what is multiplied and summed: a round is a fixed number of products."""
    products = kernels.peak_products(kind)
    if products == 0:
        assert kind == "pairs" and kernels.product_kind("bf16", 64, "bf16") == "rounded"
        with pytest.raises(ValueError, match="no units for such products"):
            kernels.time_peak(pools[0], kind, 10, 1)
        return
    tiles = kind == "pairs" and isa.startswith("amx")
    assert products == 32**3 if tiles else products % kernels.peak_products("floats") == 0
    assert len(kernels.time_peak(pools[1], kind, 10, 3)) == 3
    with pytest.raises(ValueError, match="rounds"):
        kernels.time_peak(pools[0], kind, 0, 1)


def test_products_tell_what_they_multiply(isa: str) -> None:
    """Plain weights of few tokens as f32; a kind that is told has units."""
    assert kernels.product_kind("f16", 1) == kernels.product_kind("f16", 64) == "floats"
    assert kernels.product_kind("f16", 64, "bf16") == kernels.product_kind("bf16", 1, "bf16") == "floats"
    assert kernels.product_kind("bf16", 64, "bf16") in ("rounded", "pairs")
    assert kernels.product_kind("q8_0", 1) == kernels.product_kind("q8_0", 1, "int8") == "words"
    assert kernels.product_kind("q8_0", 1, "f32") == kernels.product_kind("q8_0", 64, "f32") == "tiled"
    assert kernels.product_kind("q4_0", 64, "int8") == "bytes"
    assert kernels.product_kind("q8_0", 64, "int8") in ("bytes", "small_words")
    for fmt, tokens in product_of(FORMATS, (1, 17, 300)):
        assert kernels.peak_products(kernels.product_kind(fmt, tokens)) > 0
    unknown: Any = "bits"
    with pytest.raises(ValueError, match="kind must be"):
        kernels.peak_products(unknown)


def test_subnormal_numbers_are_zero_to_the_threads_of_a_pool(isa: str, pools: tuple[Pool, ...]) -> None:
    """Products that are too small for a normal number, and factors that are subnormal, are flushed on every thread."""
    rows, columns = 64, 16
    for weight, factor in ((1e-30, 1e-10), (1e-40, 1e10)):
        weights = np.full((rows, columns), weight, np.float32)
        buffer = packed(weights, "f32")
        for pool in pools:
            x, y = np.full(columns, factor, np.float32), np.ones(rows, np.float32)
            kernels.linear(pool, "f32", buffer, rows, columns, x, y, 1)
            assert not y.any()


@together("tiny", [2.0**-24, 3 * 2.0**-20, 1023 * 2.0**-24, 2.0**-14])
def test_subnormal_halves_are_normal_numbers_all_the_same(isa: str, pools: tuple[Pool, ...], tiny: float) -> None:
    weights = np.full((16, 32), tiny, np.float32)
    buffer = packed(weights, "f16")
    y = np.zeros(16, np.float32)
    kernels.linear(pools[0], "f16", buffer, 16, 32, np.ones(32, np.float32), y, 1)
    np.testing.assert_array_equal(y, np.float32(32 * tiny))
