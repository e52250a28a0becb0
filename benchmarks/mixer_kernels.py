"""Networks of experts beside plain linear layers of the same bytes and rows, and recurrent mixers beside a plain read
and the units' peak. Series of `benchmarks.kernels`."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product as product_of
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from benchmarks.comparison import Row, Side, compare
from benchmarks.kernel_bench import Bench, fill, timed
from benchmarks.prompt_kernels import peak
from helmsman.executor import _kernels as kernels
from helmsman.executor._kernels import Arena, Buffer, Pool

if TYPE_CHECKING:
    from helmsman.schemas.formats import StoredFormat

FORMATS: "tuple[StoredFormat, ...]" = ("q4_0", "q4_k", "q8_0", "bf16")
TOKENS = (1, 16, 128, 512)
PASSES = {1: 16, 16: 2}
"""Passes of one call, each with other experts, so that a cache holds none of them; one of more tokens."""
EXPERTS, CHOSEN, HIDDEN, WIDTH = 128, 8, 2048, 768
"""Of a layer of Qwen3-30B-A3B."""
RECURRENT_SHAPE = (16, 32, 128, 128)
"""Key heads, value heads and dimensions of a layer of Qwen3.5-35B-A3B."""


@dataclass(frozen=True)
class Matrices:
    """One matrix of every expert, one after the other, so that several are a larger matrix too."""

    fmt: "StoredFormat"
    rows: int
    columns: int
    whole: Buffer

    @classmethod
    def random(cls, fmt: "StoredFormat", rows: int, columns: int, seed: int) -> "Matrices":
        """Random weights of all experts."""
        size = EXPERTS * kernels.packed_size(fmt, rows, columns)
        whole = Arena(size + 64).alloc(size, "experts")
        fill(whole, seed)
        return cls(fmt, rows, columns, whole)

    @property
    def size(self) -> int:
        """Return bytes of one expert."""
        return kernels.packed_size(self.fmt, self.rows, self.columns)

    def parts(self, count: int) -> list[Buffer]:
        """Return the matrix in pieces of `count` experts."""
        return [self.whole.part(first * self.size, count * self.size) for first in range(0, EXPERTS - count + 1, count)]

    def seconds(self, pool: Pool, count: int, tokens: int, passes: int) -> float:
        """Return the seconds of as many plain products with `count` experts' rows as one matrix."""
        rows = count * self.rows
        return sum(kernels.time_linear(pool, self.fmt, self.parts(count), rows, self.columns, tokens, passes))


@dataclass(frozen=True)
class ExpertLayer:
    """Gate, up and down of all experts."""

    gate: Matrices
    up: Matrices
    down: Matrices

    @classmethod
    def random(cls, fmt: "StoredFormat") -> "ExpertLayer":
        """Random weights."""
        wide = [Matrices.random(fmt, WIDTH, HIDDEN, seed) for seed in (1, 2)]
        return cls(*wide, Matrices.random(fmt, HIDDEN, WIDTH, 3))

    def ours(self, pool: Pool, ids: NDArray[np.int32]) -> Side:
        """The kernel of experts, passes one after the other."""
        passes, tokens, chosen = ids.shape
        x = np.random.default_rng(1).standard_normal((tokens, HIDDEN), np.float32)
        y, weights = np.zeros_like(x), np.full(ids.shape, 1 / chosen, np.float32)
        fmt, one = self.up.fmt, 1
        matrices = [part.parts(one) for part in (self.gate, self.up, self.down)]

        def seconds() -> float:
            given = fmt, fmt, HIDDEN, WIDTH, ids, weights, x, y, tokens, chosen
            return sum(kernels.experts(pool, *matrices, *given, passes=passes))

        return Side(f"experts {fmt} of {tokens} tokens", self.work(ids), seconds)

    def plain(self, pool: Pool, ids: NDArray[np.int32]) -> Side:
        """Linear layers of as many bytes, and as many rows for each."""

        def seconds() -> float:
            if ids.shape[1] == 1:
                parts = (self.gate, self.up, self.down)
                return sum(part.seconds(pool, ids.shape[2], 1, len(ids)) for part in parts)
            total = 0.0
            for choice in ids:
                for rows, count in Counter(np.unique(choice, return_counts=True)[1].tolist()).items():
                    total += sum(part.seconds(pool, count, rows, 1) for part in (self.gate, self.up, self.down))
            return total

        return Side("linear", self.work(ids), seconds)

    def work(self, ids: NDArray[np.int32]) -> float:
        """Return GB read up to 16 tokens, GFLOP beyond."""
        if ids.shape[1] > max(PASSES):
            return ids.size * 2 * 3 * HIDDEN * WIDTH / 1e9
        hit = sum(len(np.unique(choice)) for choice in ids)
        return hit * (self.gate.size + self.up.size + self.down.size) / 1e9


def choices(tokens: int, passes: int) -> NDArray[np.int32]:
    """Return experts of every pass and token, ascending; of single tokens no expert twice in a row of passes."""
    rng = np.random.default_rng(tokens)
    if tokens == 1:
        return np.sort(rng.permutation(EXPERTS)[: passes * CHOSEN].reshape(passes, 1, CHOSEN), 2).astype(np.int32)
    order = rng.permuted(np.tile(np.arange(EXPERTS), (passes * tokens, 1)), axis=1)[:, :CHOSEN]
    return np.sort(order, 1).reshape(passes, tokens, CHOSEN).astype(np.int32)


def experts(bench: Bench) -> Iterator[Row]:
    """Every format and number of tokens, under uniform routing, against linear layers of the same bytes and rows."""
    for fmt in FORMATS:
        layer = ExpertLayer.random(fmt)
        for tokens, (threads, pool) in product_of(TOKENS, bench.pools.items()):
            ids = choices(tokens, PASSES.get(tokens, 1))
            unit = "GB/s" if tokens <= max(PASSES) else "GFLOP/s"
            yield compare(layer.ours(pool, ids), layer.plain(pool, ids), threads, unit, bench.pairs)


def recurrence(pool: Pool, sequences: int, tokens: int) -> Side:
    """The delta rule of one layer: GB of states read and written up to 8 tokens, GFLOP of the chunked form beyond."""
    key_heads, value_heads, key_dim, value_dim = RECURRENT_SHAPE
    rng = np.random.default_rng(1)
    q, k = (rng.standard_normal((sequences, tokens, key_heads, key_dim), np.float32) for _ in range(2))
    v = rng.standard_normal((sequences, tokens, value_heads, value_dim), np.float32)
    decay, rate = (rng.random((sequences, tokens, value_heads), np.float32) for _ in range(2))
    state = np.zeros((sequences, value_heads, key_dim, value_dim), np.float32)
    out = np.empty_like(v)
    chunked = sequences * tokens * value_heads * (6 * key_dim * value_dim + 64 * (5 * key_dim + 3 * value_dim)) / 1e9

    def call() -> None:
        kernels.recur(pool, q, k, v, -decay, rate, None, state, out, RECURRENT_SHAPE, sequences, tokens)

    work = 2 * state.nbytes / 1e9 if tokens <= 8 else chunked
    return Side(f"delta rule {sequences} x {tokens} tokens", work, lambda: timed(call))


def recurrent(bench: Bench) -> Iterator[Row]:
    """The delta rule of single tokens against a plain read, of prompts against the units' peak."""
    for threads, pool in bench.pools.items():
        yield bench.against_read(recurrence(pool, 64, 1), threads)
        yield compare(recurrence(pool, 1, 512), peak(pool, "floats"), threads, "GFLOP/s", bench.pairs)
