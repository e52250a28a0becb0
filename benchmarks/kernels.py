"""Kernels against their limits and peers on this machine: `python -m benchmarks.kernels [--json FILE]`.

The limit is a plain read of as many bytes by the same threads, compared with itself too, which gives the noise, or,
where arithmetic binds (`units`), multiplications in registers alone; the peer is torch. Weights are random and rotate
over buffers several times the last-level cache. A figure is not to be quoted when others took more than 8 % of the CPU
time."""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.comparison import Row, Side, compare
from benchmarks.kernel_bench import QUANTISED, ROTATION, Bench, Weights, fill, open_bench, timed
from benchmarks.latent_kernels import latent
from benchmarks.machine import print_machine
from benchmarks.mixer_kernels import experts, recurrent
from benchmarks.prompt_kernels import products, prompts, units, windows
from benchmarks.rows import show
from helmsman.executor import _kernels as kernels
from helmsman.executor._kernels import Arena, Buffer, Pool

if TYPE_CHECKING:
    from helmsman.executor.devices.parts import KvSpan
    from helmsman.schemas.formats import Format, KvFormat, StoredFormat


CONTEXT = 16384
"""Positions of a sequence in pages."""

BATCHES = (1, 4, 16)

SHAPES = ((1024, 1024), (1024, 4096), (4096, 4096), (12288, 4096), (4096, 12288))


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


SERIES: dict[str, Callable[[Bench], Iterator[Row]]] = {
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
    "windows": windows,
    "expansion": expansion,
    "experts": experts,
    "recurrent": recurrent,
    "latent": latent,
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
