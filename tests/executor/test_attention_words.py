"""The tests hold attention of prompts in int16 to the error bound of csrc/kernels/kernels.h, beside numpy in f64."""

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from daily import one_in
from numpy.typing import NDArray
from test_attention_spans import Floats, Paged, Pages, calls, normal, random_case, spread
from test_kernels_split_attention import expected
from test_stage_native import LLAMA, Shape, close, stored

from helmsman.executor._kernels import Pool

if TYPE_CHECKING:
    from helmsman.schemas.formats import KvFormat

CPUS = sorted(os.sched_getaffinity(0))
SHAPES = ((8, 2, 128, 1), (5, 1, 40, 3), (3, 3, 64, 1), (2, 1, 7, 1), (4, 1, 256, 1))
"""Query heads, KV heads, head_dim and sequences."""


@pytest.fixture(scope="module")
def two() -> Pool:
    return Pool([CPUS[0], CPUS[-1]])


def rounding_error(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest rounding error of a component of each query or key vector, for `rows` (..., dim)."""
    length, most = np.sqrt(np.square(rows).sum(-1)), np.abs(rows).max(-1)
    return np.maximum(length / 46000, most / 32760) / 2


def int16_error_bound(q: Floats, k: Floats, v: Floats) -> NDArray[np.float64]:
    """Return the largest error that csrc/kernels/kernels.h allows attention in int16 of the last tokens of a context:
    q (batch, tokens, heads, dim), k and v (batch, kv_heads, context, dim)."""
    (batch, tokens, heads, dim), (kv_heads, context) = q.shape, k.shape[1:3]
    queries = q.astype(np.float64).swapaxes(1, 2).reshape(batch, kv_heads, heads // kv_heads, tokens, dim) / dim**0.5
    keys, values = k.astype(np.float64)[:, :, None], np.abs(v.astype(np.float64))[:, :, None]
    seen = np.arange(context) <= np.arange(context - tokens, context)[:, None]
    by_query, by_key = rounding_error(queries)[..., None], rounding_error(keys)[..., None, :]
    sizes = np.abs(queries) @ np.abs(keys).swapaxes(-1, -2)
    off = by_query * np.abs(keys).sum(-1)[..., None, :] + np.abs(queries).sum(-1)[..., None] * by_key
    off = np.where(seen, off + dim * by_query * by_key + 2.0**-18 * sizes, 0).max(-1, keepdims=True)
    scores = np.where(seen, queries @ keys.swapaxes(-1, -2), -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    moved = (np.expm1(2 * off) + 1e-5) * (weights @ values)
    rounded = weights @ values.max(-1, keepdims=True) * (64 / 65000 + 1 / 16000)
    return np.asarray((moved + rounded).reshape(batch, heads, tokens, dim).swapaxes(1, 2))


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_dim", "batch", "kv_format"),
    one_in(2, [(*shape, fmt) for shape in SHAPES for fmt in ("f32", "f16", "bf16", "q8_0")]),
)
def test_prompts_in_int16_are_within_the_bound(
    word_isa: str, two: Pool, heads: int, kv_heads: int, head_dim: int, batch: int, kv_format: "KvFormat"
) -> None:
    """Prompts attend to one cache or to its pages in any order; a single token attends in f32, as prompts do on
    processors where int16 would be no faster."""
    rng = np.random.default_rng(heads)
    head_dim = 96 if kv_format == "q8_0" and head_dim % 32 != 0 else head_dim
    shape = shaped(heads, kv_heads, head_dim, batch, kv_format)
    paged = Paged(shape, two, "int16")
    for context, tokens in ((150, 21), (41, 41), (2, 2), (299, 2)):
        q, k, v = random_case(rng, shape, context, tokens)
        exact, bound = expected(q, k, v), int16_error_bound(q, k, v)
        pages, past = Pages(k, v, 16, kv_format, rng), context - tokens
        for outputs in (paged.plain(q, k, v), paged.attend(q, calls(pages.cut(rng, 9), rng), past)):
            assert (np.abs(outputs - exact) <= bound).all()
            assert np.sqrt(np.square(outputs - exact).mean()) <= 3e-4 * np.sqrt(np.square(exact).mean())
    q, k, v = random_case(rng, shape, 150, 1)
    close(paged.plain(q, k, v), expected(q, k, v), 2e-4 if kv_format == "q8_0" else 1e-5)


def shaped(heads: int, kv_heads: int, head_dim: int, batch: int, kv_format: "KvFormat") -> Shape:
    """Return a model of one block with these heads, and caches of 300 positions."""
    return replace(LLAMA, heads=heads, kv_heads=kv_heads, head_dim=head_dim, rotary_dim=0, layers=1, batch=batch,
                   capacity=300, kv_format=kv_format)  # fmt: skip


@pytest.mark.parametrize("size", [1e-3, 1.0, 8.0])
def test_any_magnitudes_are_within_the_bound(word_isa: str, two: Pool, size: float) -> None:
    """Queries that one column dominates, an attention sink with the smallest values, positions whose keys and values
    are thousands of times larger than others; scores that are all alike, and such that one weight is all."""
    rng = np.random.default_rng(7)
    paged = Paged(shaped(4, 1, 128, 1, "f32"), two, "int16")
    for tokens in (3, 40):
        q, k, v = (spread(rng, 1, rows, heads, 128) for rows, heads in ((tokens, 4), (1, 290), (1, 290)))
        v[0, 0, 0], k[0, 0, 0], q[..., 3] = 1e-3 * v[0, 0, 0], q[0, 0, 0], 100
        q /= np.sqrt(np.square(q).sum(-1, keepdims=True)) / size
        assert (np.abs(paged.plain(q, k, v) - expected(q, k, v)) <= int16_error_bound(q, k, v)).all()


def test_sums_that_have_31_bits_do_not_overflow(word_isa: str, two: Pool) -> None:
    """Equal queries, keys and values: the largest sums of products that there can be."""
    for dim in (32, 128, 256):
        paged = Paged(shaped(2, 1, dim, 1, "f32"), two, "int16")
        q, k = np.full((1, 64, 2, dim), 0.5, np.float32), np.full((1, 1, 290, dim), 0.5, np.float32)
        for value in (1, -1):
            v = np.full_like(k, value)
            close(paged.plain(q, k, v), expected(q, k, v), 1.3e-4)


def test_outputs_do_not_depend_on_later_positions_or_on_threads(word_isa: str, two: Pool) -> None:
    """A token's attention output has the same bits with one thread as with two, whatever later keys and values are."""
    rng = np.random.default_rng(9)
    shape = shaped(4, 2, 64, 1, "f16")
    q, k, v = random_case(rng, shape, 100, 100)
    outputs = Paged(shape, two, "int16").plain(q, k, v)
    by_one_thread = Paged(shape, Pool(CPUS[:1]), "int16").plain(q, k, v)
    np.testing.assert_array_equal(by_one_thread, outputs)
    for cache in (k, v):
        cache[:, :, 45:] = stored(100 * normal(rng, 1, 2, 55, 64), "f16")
    after_other_positions = Paged(shape, two, "int16").plain(q, k, v)
    np.testing.assert_array_equal(after_other_positions[:, :45], outputs[:, :45])


def test_zero_values_give_zeros_and_nan_values_give_nan(word_isa: str, two: Pool) -> None:
    """Zero queries attend to all positions alike; zero values give zeros, and a NaN value gives NaN in its column."""
    rng = np.random.default_rng(3)
    paged = Paged(shaped(2, 1, 64, 1, "f32"), two, "int16")
    q, k, v = normal(rng, 1, 30, 2, 64), normal(rng, 1, 1, 90, 64), normal(rng, 1, 1, 90, 64)
    zeros = np.zeros_like(q)
    assert (np.abs(paged.plain(zeros, k, v) - expected(zeros, k, v)) <= int16_error_bound(zeros, k, v)).all()
    assert not paged.plain(q, k, np.zeros_like(v)).any()
    v[0, 0, 10, 5] = np.nan
    assert np.isnan(paged.plain(q, k, v)[..., 5]).all()
