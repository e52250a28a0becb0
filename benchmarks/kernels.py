"""Kernels against their limits and peers on this machine: `python -m benchmarks.kernels [--json FILE] [--quick]`.

Every figure is a median of pair-wise ratios: ours, the limit (a plain read of as many bytes) and the peer are
interleaved, weights rotate over buffers several times the last-level cache, and one limit is also compared with
itself, which gives the noise. Busy neighbours are recorded: beyond 8 % of CPU time a figure is not to be quoted."""

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from helmsman.executor import _kernels as kernels
from helmsman.executor._kernels import Arena, Buffer, Pool
from helmsman.schemas.formats import Format

ROTATION = 256 << 20
"""Bytes of weights that one series walks through: seven times the last-level cache of a 36 MiB machine."""


@dataclass(frozen=True)
class Row:
    """One comparison: `ours` against `other`; rates are medians, `ratio` is the median of pair-wise ratios."""

    what: str
    against: str
    threads: int
    unit: str
    ours: float
    other: float
    ratio: float
    low: float
    high: float
    others_cpu: float


def compare(
    what: str, against: str, threads: int, unit: str, work: float, ours: Callable[[], float],
    other: Callable[[], float], pairs: int, other_work: float | None = None,
) -> Row:  # fmt: skip
    """Alternate `ours` and `other` (seconds each) and summarise work / seconds."""
    other_work = work if other_work is None else other_work
    begun, cpu, total = time.perf_counter(), time.process_time(), _machine_cpu()
    samples = []
    for index in range(pairs):
        pair = (ours(), other()) if index % 2 == 0 else (other(), ours())[::-1]
        samples.append((work / pair[0], other_work / pair[1]))
    wall = time.perf_counter() - begun
    share = max(0.0, (_machine_cpu() - total) - (time.process_time() - cpu)) / (wall * (os.cpu_count() or 1))
    rates = np.array(samples)
    ratios = rates[:, 0] / rates[:, 1]
    low, ratio, high = (float(np.percentile(ratios, p)) for p in (10, 50, 90))
    mine, others = (float(rate) for rate in np.median(rates, axis=0))
    return Row(what, against, threads, unit, mine, others, ratio, low, high, share)


def _machine_cpu() -> float:
    """Seconds of CPU time that all processes have used."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq = (int(field) for field in fields[:7])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


@dataclass
class Setup:
    """Pools by threads, and one arena that the series share."""

    pools: dict[int, Pool]
    pairs: int
    arena: Arena
    read: Buffer

    def weights(self, fmt: Format, rows: int, columns: int) -> list[Buffer]:
        """Random packed matrices of together at least ROTATION bytes, in a fresh arena."""
        size = kernels.packed_size(fmt, rows, columns)
        count = -(-ROTATION // size)
        arena = Arena(count * (size + 64))
        rng = np.random.default_rng(0)
        source = rng.standard_normal((rows, columns), np.float32)
        buffers = [arena.alloc(size, "weights") for _ in range(count)]
        for buffer in buffers:
            kernels.pack(np.roll(source, 1), "f32", buffer, fmt, rows, columns)
        return buffers


def setup(pairs: int) -> Setup:
    """Pools of one thread and of every CPU; a read buffer of ROTATION random bytes."""
    cpus = sorted(os.sched_getaffinity(0))
    pools = {count: Pool(cpus[:count]) for count in sorted({1, len(cpus)})}
    arena = Arena(ROTATION)
    read = arena.alloc(ROTATION, "read")
    np.frombuffer(memoryview(read), np.uint64)[:] = np.random.default_rng(1).integers(
        0, 1 << 63, ROTATION // 8, np.uint64
    )
    return Setup(pools, pairs, arena, read)


def gemv(s: Setup) -> Iterator[Row]:
    """One token against the plain read, and the read against itself."""
    for threads, pool in s.pools.items():
        for fmt in ("f16", "bf16", "f32"):
            for rows, columns in ((4096, 4096), (12288, 4096), (1024, 4096)):
                weights = s.weights(fmt, rows, columns)
                size = kernels.packed_size(fmt, rows, columns)
                turns = len(weights)
                for isa in [name for name in kernels.supported_isas() if name != "portable"]:
                    kernels.select_isa(isa)
                    yield compare(
                        f"gemv {isa} {fmt} {rows}x{columns}", "read", threads, "GB/s", size * turns / 1e9,
                        lambda: sum(kernels.time_linear(pool, fmt, weights, rows, columns, 1, turns)),
                        lambda: kernels.time_read(pool, s.read, 1)[0], s.pairs, ROTATION / 1e9,
                    )  # fmt: skip
                kernels.select_isa(kernels.supported_isas()[0])
        read = [lambda: kernels.time_read(pool, s.read, 1)[0]] * 2
        yield compare("read", "itself", threads, "GB/s", ROTATION / 1e9, *read, s.pairs)


def batches(s: Setup) -> Iterator[Row]:
    """A few tokens against the plain read: each weight is used once."""
    for threads, pool in s.pools.items():
        weights = s.weights("bf16", 4096, 4096)
        size = kernels.packed_size("bf16", 4096, 4096) * len(weights)
        for tokens in (2, 4, 8, 16):
            yield compare(
                f"batch {tokens} bf16 4096x4096", "read", threads, "GB/s", size / 1e9,
                lambda: sum(kernels.time_linear(pool, "bf16", weights, 4096, 4096, tokens, len(weights))),
                lambda: kernels.time_read(pool, s.read, 1)[0], s.pairs, ROTATION / 1e9,
            )  # fmt: skip


def attention(s: Setup) -> Iterator[Row]:
    """Decode attention of 8 key/value heads against the plain read."""
    heads, head_dim, capacity, fmt = 8, 128, 4096, "f16"
    size = 2 * heads * capacity * head_dim * 2
    count = ROTATION // size
    arena = Arena(ROTATION)
    noise = np.random.default_rng(2).standard_normal(size // 4).astype(np.float16)
    caches = [(arena.alloc(size // 2, "keys"), arena.alloc(size // 2, "values")) for _ in range(count)]
    for keys, values in caches:
        for buffer in (keys, values):
            np.frombuffer(memoryview(buffer), np.float16)[:] = noise
    for threads, pool in s.pools.items():
        for group in (1, 2, 4, 8):
            for context in (512, 4096):
                read = size * context // capacity * count
                yield compare(
                    f"decode attention {fmt} group {group} context {context}", "read", threads, "GB/s", read / 1e9,
                    lambda: sum(
                        kernels.time_attention(
                            pool, fmt, caches, heads * group, heads, head_dim, capacity, context, count
                        )
                    ),
                    lambda: kernels.time_read(pool, s.read, 1)[0], s.pairs, ROTATION / 1e9,
                )  # fmt: skip


def timed(call: Callable[[], object]) -> float:
    """Seconds of one call."""
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def torch_gemv(s: Setup) -> Iterator[Row]:
    """One token against torch's nn.Linear of the same format."""
    import torch

    threads, pool = max(s.pools.items())
    torch.set_num_threads(threads)
    for fmt, dtype in (("f16", torch.float16), ("bf16", torch.bfloat16)):
        for rows in (4096, 12288):
            weights = s.weights(fmt, rows, 4096)
            turns = len(weights)
            layers = [torch.nn.Linear(4096, rows, bias=False, dtype=dtype) for _ in range(turns)]
            x = torch.randn(1, 4096, dtype=dtype)
            with torch.inference_mode():
                yield compare(
                    f"gemv {fmt} {rows}x4096", "torch", threads, "GB/s", 2 * rows * 4096 * turns / 1e9,
                    lambda: sum(kernels.time_linear(pool, fmt, weights, rows, 4096, 1, turns)),
                    lambda: timed(lambda: [layer(x) for layer in layers]), s.pairs,
                )  # fmt: skip


def products(s: Setup) -> Iterator[Row]:
    """128 tokens against torch's f16 (scalar on CPUs without AMX/FP16) and f32 (MKL or oneDNN) products."""
    import torch

    for threads, pool in s.pools.items():
        torch.set_num_threads(threads)
        weights = s.weights("f16", 4096, 4096)[:4]
        flops = 2 * 128 * 4096 * 4096 / 1e9

        def ours(pool: Pool = pool, weights: Sequence[Buffer] = weights) -> float:
            return float(np.median(kernels.time_linear(pool, "f16", weights, 4096, 4096, 128, 3)))

        wide = torch.randn(4096, 4096)
        for dtype, pairs, rows in ((torch.float32, s.pairs, 4096), (torch.float16, 3, 128)):
            weight, x = wide[:rows].to(dtype), torch.randn(128, 4096).to(dtype)
            with torch.inference_mode():
                yield compare(
                    "product f16 128 x 4096x4096", f"torch {dtype}".replace("torch.", ""), threads, "GFLOP/s",
                    flops, ours, lambda: timed(lambda: torch.nn.functional.linear(x, weight)), pairs,
                    flops * rows / 4096,
                )  # fmt: skip


def forks(s: Setup) -> Iterator[str]:
    """Microseconds of a product so small that only the barrier is left."""
    size = kernels.packed_size("f32", 16, 16)
    tiny = Arena(size).alloc(size, "tiny")
    for threads, pool in s.pools.items():
        seconds = kernels.time_linear(pool, "f32", [tiny], 16, 16, 1, 20000)
        yield f"fork-join over {threads} threads: {1e6 * float(np.median(seconds)):.2f} us"


SERIES = {"gemv": gemv, "batches": batches, "attention": attention, "torch": torch_gemv, "products": products}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the rows here")
    parser.add_argument("--pairs", type=int, default=9, help="interleaved pairs per figure")
    parser.add_argument("--series", nargs="*", choices=sorted(SERIES), default=list(SERIES))
    given = parser.parse_args()
    ready = setup(given.pairs)
    print(f"instruction sets: {', '.join(kernels.supported_isas())}")
    for line in forks(ready):
        print(line)
    rows = []
    for name in given.series:
        for row in SERIES[name](ready):
            rows.append(row)
            print(
                f"{row.what:44s} {row.threads} thr {row.ours:7.1f} {row.unit} | {row.against:14s} {row.other:7.1f}"
                f" | ratio {row.ratio:6.2f} [{row.low:.2f}, {row.high:.2f}] | others {row.others_cpu:4.0%}",
                flush=True,
            )
    if given.json is not None:
        given.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


if __name__ == "__main__":
    main()
