"""Attention to latent vectors (MLA), all heads over one row a token, against the units' peak: one token and prompts.
Series of `benchmarks.kernels`."""

from collections.abc import Iterator
from functools import partial
from itertools import product as product_of

from benchmarks.comparison import Row, Side, compare
from benchmarks.kernel_bench import ROTATION, Bench, fill
from benchmarks.prompt_kernels import peak
from helmsman.executor import _kernels as kernels
from helmsman.executor._kernels import Arena, Buffer, Pool
from helmsman.schemas.formats import KvFormat, rows_size

LATENT, ROTATED = 512, 64
"""Values of a latent vector and of what turns, of DeepSeek and GLM-4.7-Flash."""
HEADS = (16, 20, 128)
"""Of DeepSeek-V2-Lite, GLM-4.7-Flash and DeepSeek-V3."""
FORMATS: tuple[KvFormat, ...] = ("f16", "q8_0")


def latent(bench: Bench) -> Iterator[Row]:
    """One token over contexts, and prompts: the multiplications that are wanted, of which values are the latent part of
    a row alone."""
    for fmt, heads, (threads, pool) in product_of(FORMATS, HEADS, bench.pools.items()):
        for context, tokens in ((512, 1), (4096, 1), (512, 512)):
            yield compare(
                side(pool, fmt, heads, context, tokens), peak(pool, "floats"), threads, "GFLOP/s", bench.pairs
            )


def side(pool: Pool, fmt: KvFormat, heads: int, context: int, tokens: int) -> Side:
    """Attention of the last `tokens` of a context, over caches that together are more than processors hold."""
    size = context * rows_size(1, LATENT + ROTATED, fmt)
    count = max(1, ROTATION // size) if tokens == 1 else 1
    pairs = _caches(size, count)
    shape = heads, 1, LATENT + ROTATED, context, context
    run = partial(kernels.time_attention, pool, fmt, pairs, *shape, count, tokens)
    seen = count * sum(range(context - tokens + 1, context + 1))
    flops = 2 * heads * seen * (2 * LATENT + ROTATED) / 1e9
    return Side(f"latent {fmt} heads {heads} context {context} tokens {tokens}", flops, lambda: sum(run()))


def _caches(size: int, count: int) -> list[tuple[Buffer, Buffer]]:
    """Rows that are keys and values alike."""
    arena = Arena(count * (size + 64))
    buffers = [arena.alloc(size, "rows") for _ in range(count)]
    for seed, buffer in enumerate(buffers):
        fill(buffer, seed)
    return [(buffer, buffer) for buffer in buffers]
