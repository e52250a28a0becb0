"""Kernels against their limits and peers on this machine: `python -m benchmarks.kernels [--json FILE]`.

The limit is a plain read of as many bytes by the same threads, compared with itself too, which gives the noise, or,
where arithmetic binds (`units`), multiplications in registers alone; the peer is torch. Weights are random and rotate
over buffers several times the last-level cache. A figure is not to be quoted when others took more than 8 % of the CPU
time."""

import argparse
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product as product_of
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.comparison import Row, Side, compare
from benchmarks.machine import print_machine
from benchmarks.rows import show
from helmsman.executor import _kernels as kernels
from helmsman.executor._kernels import Arena, Buffer, Pool

if TYPE_CHECKING:
    from helmsman.executor._kernels import Format, InputKind, KvFormat, KvSpan, StoredFormat

ROTATION = 256 << 20
"""Bytes that one series walks through: seven times the last-level cache of a 36 MiB machine."""

CONTEXT = 16384
"""Positions of a sequence in pages."""

BATCHES = (1, 4, 16)

SHAPES = ((1024, 1024), (1024, 4096), (4096, 4096), (12288, 4096), (4096, 12288))

PROMPTS = (128, 512, 1024)

PROMPT_SHAPES = ((3072, 1024), (1024, 3072), (6144, 2048), (2048, 6144), (12288, 4096), (4096, 12288))
"""The MLPs of Qwen3-0.6B, 1.7B and 8B."""

QUANTISED: "tuple[StoredFormat, ...]" = ("q8_0", "q8", "q4_0", "q4_k", "q4", "q6_k")


@dataclass(frozen=True)
class Bench:
    """Pools by threads; `read`: ROTATION random bytes; `pairs` of every comparison."""

    pools: dict[int, Pool]
    read: Buffer
    pairs: int

    def against_read(self, ours: Side, threads: int) -> Row:
        """`ours`, in GB, against a plain read."""
        return compare(ours, self.reading(threads), threads, "GB/s", self.pairs)

    def reading(self, threads: int) -> Side:
        return Side("read", ROTATION / 1e9, lambda: kernels.time_read(self.pools[threads], self.read, 1)[0])


def open_bench(pairs: int) -> Bench:
    """Pools of one thread and of one per CPU."""
    cpus = sorted(os.sched_getaffinity(0))
    read = Arena(ROTATION).alloc(ROTATION, "read")
    fill(read, 1)
    return Bench({count: Pool(cpus[:count]) for count in sorted({1, len(cpus)})}, read, pairs)


def fill(buffer: Buffer, seed: int) -> None:
    """Random finite f16 values, which are finite as bf16 and f32 too."""
    values = np.random.default_rng(seed).integers(0, 1 << 16, buffer.size // 2, np.uint16)
    np.frombuffer(memoryview(buffer), np.uint16)[:] = (values & 0x83FF) | 0x2C00


@dataclass(frozen=True)
class Weights:
    """Packed matrices of one shape, together at least ROTATION bytes."""

    fmt: "StoredFormat"
    rows: int
    columns: int
    buffers: list[Buffer]

    @classmethod
    def random(cls, fmt: "StoredFormat", rows: int, columns: int) -> "Weights":
        size = kernels.packed_size(fmt, rows, columns)
        count = -(-ROTATION // size)
        arena = Arena(count * size)
        buffers = [arena.alloc(size, "weights") for _ in range(count)]
        for seed, buffer in enumerate(buffers):
            fill(buffer, seed)
        return cls(fmt, rows, columns, buffers)

    @property
    def gigabytes(self) -> float:
        return sum(buffer.size for buffer in self.buffers) / 1e9

    def seconds(self, pool: Pool, tokens: int) -> float:
        """Of one walk through all matrices."""
        count = len(self.buffers)
        return sum(kernels.time_linear(pool, self.fmt, self.buffers, self.rows, self.columns, tokens, count))

    def side(self, label: str, pool: Pool, tokens: int = 1) -> Side:
        name = f"{label} {self.fmt} {self.rows}x{self.columns}"
        return Side(name, self.gigabytes, partial(self.seconds, pool, tokens))


def gemv(bench: Bench) -> Iterator[Row]:
    """One token, plain formats, every vector instruction set and number of threads; the read against itself."""
    yield from one_token(bench, ("f16", "bf16", "f32"), ("avx512", "avx2"))
    for threads in bench.pools:
        yield bench.against_read(bench.reading(threads), threads)


def quantised(bench: Bench) -> Iterator[Row]:
    """One token, weights in quantised formats."""
    yield from one_token(bench, QUANTISED, ("avx512vnni", "avx512", "avx2"))


def one_token(bench: Bench, formats: "tuple[StoredFormat, ...]", sets: tuple[str, ...]) -> Iterator[Row]:
    """Of those instruction sets that this processor has."""
    for fmt in formats:
        for rows, columns in SHAPES:
            weights = Weights.random(fmt, rows, columns)
            for isa in [name for name in kernels.supported_isas() if name in sets]:
                kernels.select_isa(isa)
                for threads, pool in bench.pools.items():
                    yield bench.against_read(weights.side(f"gemv {isa}", pool), threads)
    kernels.select_isa(kernels.supported_isas()[0])


def batches(bench: Bench) -> Iterator[Row]:
    """A few tokens: each weight is used once."""
    formats: tuple[StoredFormat, ...] = ("bf16", "q8_0", "q4_0")
    for fmt in formats:
        weights = Weights.random(fmt, 4096, 4096)
        for threads, pool in bench.pools.items():
            for tokens in (2, 4, 8, 16):
                yield bench.against_read(weights.side(f"batch of {tokens}", pool, tokens), threads)


@dataclass(frozen=True)
class Caches:
    """(K, V) pairs of 8 heads of 128, capacity 4096, f16: together ROTATION bytes."""

    pairs: list[tuple[Buffer, Buffer]]

    @classmethod
    def random(cls) -> "Caches":
        size, arena = 8 * 4096 * 128 * 2, Arena(ROTATION)
        buffers = [arena.alloc(size, "cache") for _ in range(ROTATION // size)]
        for seed, buffer in enumerate(buffers):
            fill(buffer, seed)
        return cls(list(zip(buffers[::2], buffers[1::2], strict=True)))

    def seconds(self, pool: Pool, group: int, context: int) -> float:
        count = len(self.pairs)
        return sum(kernels.time_attention(pool, "f16", self.pairs, 8 * group, 8, 128, 4096, context, count))

    def side(self, pool: Pool, group: int, context: int) -> Side:
        size = len(self.pairs) * 2 * 8 * context * 128 * 2 / 1e9
        return Side(f"attention f16 group {group} context {context}", size, partial(self.seconds, pool, group, context))


def attention(bench: Bench) -> Iterator[Row]:
    """Decode attention of one sequence."""
    caches = Caches.random()
    for threads, pool in bench.pools.items():
        for group in (1, 2, 4, 8):
            for context in (512, 4096):
                yield bench.against_read(caches.side(pool, group, context), threads)


@dataclass(frozen=True)
class Pages:
    """A region of caches for 8 KV heads of 128 and contexts of 16k: pages that follow each other in random order."""

    fmt: "KvFormat"
    region: Buffer

    @classmethod
    def random(cls, fmt: "KvFormat") -> "Pages":
        """Of as many bytes as a layer of the largest batch needs, the same ROTATION again and again."""
        size = 2 * max(BATCHES) * 8 * CONTEXT * row_size(fmt)
        region = Arena(size).alloc(size, "pages")
        fill(region.part(0, ROTATION), 1)
        values = np.frombuffer(memoryview(region), np.uint8)
        for begin in range(ROTATION, size, ROTATION):
            part = values[begin : begin + ROTATION]
            part[:] = values[: part.size]
        return cls(fmt, region)

    def layers(self, page: int, batch: int) -> "list[list[KvSpan]]":
        """Spans of as many layers as the region holds, at most ROTATION."""
        head, size = page * row_size(self.fmt), batch * 8 * page * row_size(self.fmt)
        count = max(1, ROTATION // (2 * size * (CONTEXT // page)))
        places = np.random.default_rng(1).permutation(count * 2 * CONTEXT // page).reshape(count, -1, 2) * size
        return [
            [
                (self.region, int(keys), self.region, int(values), 8 * head, head, number * page, page)
                for number, (keys, values) in enumerate(layer)
            ]
            for layer in places
        ]

    def side(self, pool: Pool, page: int, batch: int, group: int) -> Side:
        layers = self.layers(page, batch)
        size = len(layers) * 2 * batch * 8 * CONTEXT * row_size(self.fmt) / 1e9
        call = partial(kernels.time_spans, pool, self.fmt, layers, 8 * group, 8, 128, batch, len(layers))
        return Side(f"{self.fmt} pages of {page} batch {batch} group {group}", size, lambda: sum(call()))


def row_size(fmt: "KvFormat") -> int:
    """Bytes of a head's key or value of 128."""
    return {"f32": 512, "f16": 256, "bf16": 256, "q8_0": 136}[fmt]


def pages(fmt: "KvFormat", bench: Bench) -> Iterator[Row]:
    """Decode attention over pages."""
    found = Pages.random(fmt)
    for threads, pool in bench.pools.items():
        for batch in BATCHES:
            for group in (2, 4):
                for page in (16, 128, 512):
                    yield bench.against_read(found.side(pool, page, batch, group), threads)


def timed(call: Callable[[], object]) -> float:
    """Seconds of one call."""
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def torch_gemv(bench: Bench) -> Iterator[Row]:
    """One token against nn.Linear of the same format, weights rotating there too."""
    formats: tuple[Format, ...] = ("f16", "bf16")
    for fmt in formats:
        for rows in (4096, 12288):
            weights = Weights.random(fmt, rows, 4096)
            for threads, pool in bench.pools.items():
                peer = torch_linear(weights, threads)
                yield compare(weights.side("gemv", pool), peer, threads, "GB/s", bench.pairs)


def torch_linear(weights: Weights, threads: int) -> Side:
    """As many torch layers of the same shape, one token."""
    import torch

    torch.set_num_threads(threads)
    dtype = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[weights.fmt]
    layers = [torch.randn(weights.rows, weights.columns).to(dtype) for _ in weights.buffers]
    x = torch.randn(1, weights.columns).to(dtype)
    return Side("torch", weights.gigabytes, lambda: timed(lambda: [torch.nn.functional.linear(x, w) for w in layers]))


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


def product(weights: Weights, pool: Pool, tokens: int) -> Side:
    """A walk of at most four products."""
    few = Weights(weights.fmt, weights.rows, weights.columns, weights.buffers[:4])
    name = f"product {weights.fmt} {tokens} x {weights.rows}x{weights.columns}"
    flops = len(few.buffers) * 2 * tokens * weights.rows * weights.columns / 1e9
    return Side(name, flops, partial(few.seconds, pool, tokens))


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


UNITS: "tuple[StoredFormat, ...]" = ("f32", "bf16", "q8_0", "q4_0")


def units(bench: Bench) -> Iterator[Row]:
    """Products of many tokens, and attention of prompts, against the units' peak: the same multiplications in registers
    alone, right beside."""
    for fmt, (rows, columns) in product_of(UNITS, ((3072, 1024), (1024, 3072), (12288, 4096))):
        weights = Weights.random(fmt, rows, columns)
        for (threads, pool), tokens in product_of(bench.pools.items(), (32, 128, 256, 1024, 4096)):
            ours = product(weights, pool, tokens)
            yield compare(ours, peak(pool, kernels.product_kind(fmt, tokens)), threads, "GFLOP/s", bench.pairs)
    for (threads, pool), tokens, group in product_of(bench.pools.items(), (128, 1024, 4096), (1, 2, 4)):
        yield compare(attention_of_prompt(pool, tokens, group), peak(pool, "floats"), threads, "GFLOP/s", bench.pairs)


def peak(pool: Pool, kind: "InputKind") -> Side:
    """Some ten milliseconds of multiplications in registers."""
    rounds = 200_000
    flops = 2 * kernels.peak_products(kind) * rounds * pool.threads / 1e9
    return Side(f"peak {kind}", flops, lambda: kernels.time_peak(pool, kind, rounds, 1)[0])


def attention_of_prompt(pool: Pool, tokens: int, group: int) -> Side:
    """Causal, of 8 KV heads of 128 in f16 and `group` query heads each."""
    size = 8 * tokens * 128 * 2
    arena = Arena(2 * size)
    keys, values = arena.alloc(size, "keys"), arena.alloc(size, "values")
    fill(keys, 1)
    fill(values, 2)
    run = partial(kernels.time_attention, pool, "f16", [(keys, values)], 8 * group, 8, 128, tokens, tokens, 1, tokens)
    return Side(
        f"prompt attention group {group} of {tokens}",
        4 * 8 * group * 128 * tokens * (tokens + 1) / 2e9,
        lambda: run()[0],
    )


def barrier_seconds(pool: Pool) -> float:
    """A product so small that only the barrier is left."""
    size = kernels.packed_size("f32", 16, 16)
    tiny = Arena(size).alloc(size, "tiny")
    return float(np.median(kernels.time_linear(pool, "f32", [tiny], 16, 16, 1, 20000)))


@dataclass(frozen=True)
class Groups:
    """What 4-bit groups become, ROTATION bytes of f16 at a time: a matrix, or a cache of heads of 128.

    Every walk writes another part of twice as many bytes, so that no walk finds its target in a cache."""

    source: Buffer
    target: Buffer
    tokens: int

    @classmethod
    def random(cls, tokens: int) -> "Groups":
        """Of caches of `tokens` tokens, whose rows hold as many bytes as those of packed matrices."""
        rows = ROTATION // (2 * 128)
        source = Arena(rows * kernels.q4_row_size(128) + 64).alloc(rows * kernels.q4_row_size(128), "groups")
        fill(source, 1)
        return cls(source, Arena(ROTATION).alloc(ROTATION, "expanded"), tokens)

    def side(self, what: str, pool: Pool) -> Side:
        call = partial(self.matrix, pool) if what == "weights" else partial(self.cache, pool, what == "keys")
        return Side(f"expand {what} of {self.tokens} {kernels.isa()}", ROTATION / 1e9, lambda: timed(call))

    def matrix(self, pool: Pool) -> None:
        kernels.decompress(pool, self.source, self.target, "f16", ROTATION // (2 * 4096), 4096)

    def cache(self, pool: Pool, lines: bool) -> None:
        """As transposed keys or as rows of values."""
        row, size = kernels.q4_row_size(128), 2 * 128 * self.tokens
        step = 2 * self.tokens if lines else 2 * 128
        counts = ROTATION // size, 1, self.tokens, 128
        came, to = (self.tokens * row, 0, row), (size, 0, step)
        kernels.turn_rows(pool, self.source, 0, came, self.target, 0, to, counts, "q4", "f16", lines)


def expansion(bench: Bench) -> Iterator[Row]:
    """4-bit groups to f16: bytes written per second, of weights, of values as rows and of keys transposed."""
    for tokens in (512, 1000):
        groups = Groups.random(tokens)
        for isa in [name for name in kernels.supported_isas() if name != "portable"]:
            kernels.select_isa(isa)
            for threads, pool in bench.pools.items():
                for what in ("weights", "values", "keys"):
                    yield bench.against_read(groups.side(what, pool), threads)
    kernels.select_isa(kernels.supported_isas()[0])


SERIES = {
    "gemv": gemv,
    "quantised": quantised,
    "batches": batches,
    "attention": attention,
    "pages-f16": partial(pages, "f16"),
    "pages-bf16": partial(pages, "bf16"),
    "pages-q8_0": partial(pages, "q8_0"),
    "torch": torch_gemv,
    "products": products,
    "prompts": prompts,
    "units": units,
    "expansion": expansion,
}


def main() -> None:
    """Print one line per comparison, and write them as JSON on request."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, help="also write the rows here")
    parser.add_argument("--pairs", type=int, default=9, help="interleaved pairs per figure")
    parser.add_argument("--series", nargs="*", choices=sorted(SERIES), default=list(SERIES))
    given = parser.parse_args()
    bench = open_bench(given.pairs)
    print_machine()
    for threads, pool in bench.pools.items():
        print(f"fork-join over {threads} threads: {1e6 * barrier_seconds(pool):.2f} us")
    show((row for name in given.series for row in SERIES[name](bench)), given.json)


if __name__ == "__main__":
    main()
