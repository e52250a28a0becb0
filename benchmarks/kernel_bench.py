"""Builds what all kernel benchmarks need: thread pools, packed random weights, and a memory read to compare with."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.comparison import Row, Side, compare
from helmsman.executor import _kernels as kernels
from helmsman.executor._kernels import Arena, Buffer, Pool

if TYPE_CHECKING:
    from helmsman.schemas.formats import Precision, StoredFormat

ROTATION = 256 << 20
"""Bytes that one series walks through: seven times the last-level cache of a 36 MiB machine."""

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

    def seconds(self, pool: Pool, tokens: int, rounding: "Precision" = "int16") -> float:
        """Return the seconds of one product with every matrix in turn."""
        count = len(self.buffers)
        return sum(kernels.time_linear(pool, self.fmt, self.buffers, self.rows, self.columns, tokens, count, rounding))

    def side(self, label: str, pool: Pool, tokens: int = 1) -> Side:
        name = f"{label} {self.fmt} {self.rows}x{self.columns}"
        return Side(name, self.gigabytes, partial(self.seconds, pool, tokens))


def timed(call: Callable[[], object]) -> float:
    """Seconds of one call."""
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun
