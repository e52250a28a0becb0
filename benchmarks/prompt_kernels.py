"""Products of many tokens and attention of prompts, which arithmetic binds: beside torch's products, and beside what
the processor's units do in registers alone. Series of `benchmarks.kernels`."""

from collections.abc import Iterator
from functools import partial
from itertools import product as product_of
from typing import TYPE_CHECKING

from benchmarks.comparison import Row, Side, compare
from benchmarks.kernel_bench import QUANTISED, Bench, Weights, fill, timed
from helmsman.executor import _kernels as kernels
from helmsman.executor._kernels import Arena, Pool
from helmsman.executor.profile.processor import OTHER_ROUNDINGS
from helmsman.schemas.rounding import DEFAULT_ROUNDING

if TYPE_CHECKING:
    from helmsman.executor._kernels import InputKind
    from helmsman.schemas.formats import Precision, StoredFormat
    from helmsman.schemas.rounding import AttentionPrecision

PROMPTS = (128, 512, 1024)


PROMPT_SHAPES = ((3072, 1024), (1024, 3072), (6144, 2048), (2048, 6144), (12288, 4096), (4096, 12288))
"""The MLPs of Qwen3-0.6B, 1.7B and 8B."""


UNITS: "tuple[StoredFormat, ...]" = ("f32", "bf16", "q8_0", "q4_0")
"""Formats of the weights whose products are compared with the units' peak."""


def products(bench: Bench) -> Iterator[Row]:
    """128 tokens against torch: f32 (MKL), f16 as nn.Linear has it, and f16 with the weight as (in, out), which is
    scalar on processors without AVX512-FP16; the f16 ones compute fewer rows where they are slow."""
    weights = Weights.random("f16", 4096, 4096)
    for threads, pool in bench.pools.items():
        ours = product(weights, pool, 128)
        for dtype, rows in (("float32", 4096), ("float16", 512)):
            peer = torch_product(dtype, rows, 4096, 128, threads)
            yield compare(ours, peer, threads, "GFLOP/s", bench.pairs)
        yield compare(ours, torch_matmul(64, threads), threads, "GFLOP/s", 3)


def prompts(bench: Bench) -> Iterator[Row]:
    """Every format against torch's f32 (MKL), whose threads should not spin beside ours: OMP_WAIT_POLICY=PASSIVE."""
    formats: tuple[StoredFormat, ...] = ("f32", "f16", "bf16", *QUANTISED)
    for (rows, columns), fmt in product_of(PROMPT_SHAPES, formats):
        weights = Weights.random(fmt, rows, columns)
        for (threads, pool), tokens in product_of(bench.pools.items(), PROMPTS):
            peer = torch_product("float32", rows, columns, tokens, threads)
            yield compare(product(weights, pool, tokens), peer, threads, "GFLOP/s", bench.pairs)


def units(bench: Bench) -> Iterator[Row]:
    """Products of many tokens, and attention of prompts, against the units' peak: the same multiplications in registers
    alone, right beside."""
    for fmt, (rows, columns) in product_of(UNITS, ((3072, 1024), (1024, 3072), (12288, 4096))):
        weights = Weights.random(fmt, rows, columns)
        roundings = dict.fromkeys((DEFAULT_ROUNDING.of(fmt), *OTHER_ROUNDINGS.get(fmt, ())))
        for (threads, pool), tokens, by in product_of(bench.pools.items(), (32, 128, 256, 1024, 4096), roundings):
            ours = product(weights, pool, tokens, by)
            yield compare(ours, peak(pool, kernels.product_kind(fmt, tokens, by)), threads, "GFLOP/s", bench.pairs)
    for (threads, pool), tokens, group in product_of(bench.pools.items(), (128, 1024, 4096), (1, 2, 4)):
        for precision, units in _attention_units():
            ours = attention_of_prompt(pool, tokens, group, precision)
            yield compare(ours, peak(pool, units), threads, "GFLOP/s", bench.pairs)


def _attention_units() -> "Iterator[tuple[AttentionPrecision, InputKind]]":
    """Yield every precision of attention for which this processor has multiplication units, and the kind of units."""
    yield "f32", "floats"
    if kernels.peak_products("pairs") > 0:
        yield "bf16", "pairs"
    if kernels.product_kind("q8_0", 128, "int16") == "words":
        yield "int16", "words"


def product(weights: Weights, pool: Pool, tokens: int, rounding: "Precision" = "int16") -> Side:
    """A walk of at most four products."""
    few = Weights(weights.fmt, weights.rows, weights.columns, weights.buffers[:4])
    name = f"product {weights.fmt} {rounding} {tokens} x {weights.rows}x{weights.columns}"
    flops = len(few.buffers) * 2 * tokens * weights.rows * weights.columns / 1e9
    return Side(name, flops, partial(few.seconds, pool, tokens, rounding))


def peak(pool: Pool, kind: "InputKind") -> Side:
    """Some ten milliseconds of multiplications in registers."""
    rounds = 200_000
    flops = 2 * kernels.peak_products(kind) * rounds * pool.threads / 1e9
    return Side(f"peak {kind}", flops, lambda: kernels.time_peak(pool, kind, rounds, 1)[0])


def windows(bench: Bench) -> Iterator[Row]:
    """Attention of prompts over a window, and with capped scores, against that over all that is past, right beside: the
    pairs that a window leaves are as many products."""
    for (threads, pool), tokens, group in product_of(bench.pools.items(), (1024, 4096), (1, 4)):
        whole = attention_of_prompt(pool, tokens, group, "f32")
        for window in (128, 1024):
            near = attention_of_prompt(pool, tokens, group, "f32", window)
            yield compare(near, whole, threads, "GFLOP/s", bench.pairs)
        capped = attention_of_prompt(pool, tokens, group, "f32", softcap=50.0)
        yield compare(capped, whole, threads, "GFLOP/s", bench.pairs)


def attention_of_prompt(
    pool: Pool, tokens: int, group: int, precision: "AttentionPrecision", window: int = 0, softcap: float = 0.0
) -> Side:
    """Causal, of 8 KV heads of 128 in f16 and `group` query heads each."""
    size = 8 * tokens * 128 * 2
    arena = Arena(2 * size)
    keys, values = arena.alloc(size, "keys"), arena.alloc(size, "values")
    fill(keys, 1)
    fill(values, 2)
    shape = 8 * group, 8, 128, tokens, tokens
    run = partial(kernels.time_attention, pool, "f16", [(keys, values)], *shape, 1, tokens, precision, window, softcap)
    seen = min(window or tokens, tokens)
    pairs = seen * (seen + 1) // 2 + (tokens - seen) * seen
    more = f" window {window}" * (window > 0) + f" cap {softcap:g}" * (softcap > 0)
    name = f"prompt attention {precision} group {group} of {tokens}{more}"
    return Side(name, 4 * 8 * group * 128 * pairs / 1e9, lambda: run()[0])


def torch_product(dtype: str, rows: int, columns: int, tokens: int, threads: int) -> Side:
    """A product of that shape as torch's nn.Linear."""
    import torch

    torch.set_num_threads(threads)
    weight = torch.randn(rows, columns).to(getattr(torch, dtype))
    x = torch.randn(tokens, columns).to(getattr(torch, dtype))
    torch.nn.functional.linear(x, weight)
    flops = 2 * tokens * columns * rows / 1e9
    return Side(f"torch {dtype}", flops, lambda: timed(lambda: torch.nn.functional.linear(x, weight)))


def torch_matmul(rows: int, threads: int) -> Side:
    """The first `rows` rows of the same product as x @ w in f16."""
    import torch

    torch.set_num_threads(threads)
    weight, x = torch.randn(4096, rows).half(), torch.randn(128, 4096).half()
    return Side("torch f16 x@w", 2 * 128 * 4096 * rows / 1e9, lambda: timed(lambda: x @ weight))
