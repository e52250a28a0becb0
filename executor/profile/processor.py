"""One processor: plain reads, matrix products by format and size, decode attention by context.

Every product is measured between two plain reads of the same pool, and kept as its share of them: the ratio
survives what the machine's neighbours do to its bandwidth (rule 1 of measuring)."""

from collections.abc import Callable, Iterator, Sequence
from statistics import median

from helmsman.executor._kernels import Buffer, Pool, packed_size, time_attention, time_linear, time_read
from helmsman.executor.probe import probe_pieces, read_rate
from helmsman.executor.profile.buffers import rotation
from helmsman.executor.profile.samples import ProcessorSamples
from helmsman.schemas.formats import FORMATS, Format, size_of

SHAPES = ((512, 1024), (1024, 1024), (2048, 1536), (4096, 2560), (11008, 4096), (65536, 1024))
"""(rows, columns) of the products: from a small K projection to a head."""
GEMM_SHAPE = (4096, 2048)
GEMM_TOKENS = (2, 4, 8, 16, 32, 64, 128, 256)
CONTEXTS = ((64, 256), (256, 256), (1024, 1024), (4096, 4096))
"""(context, capacity) of decode attention."""
HEADS, KV_HEADS, HEAD_DIM = 16, 8, 128
WIDE_GROUP = 8
PAIRS = 9
SLICE_S = 4e-3
"""Each side of a pair runs about this long."""
FOOTPRINTS = (1 << 20, 8 << 20, 64 << 20)


class Bench:
    """The buffers of a measurement, shared by all pools."""

    def __init__(self, cache_bytes: int) -> None:
        self.cache_bytes = cache_bytes
        self._rotations: dict[int, list[Buffer]] = {}
        self.noise = probe_pieces(cache_bytes)

    def matrices(self, size: int) -> list[Buffer]:
        """Buffers of `size` bytes to walk through."""
        if size not in self._rotations:
            self._rotations[size] = rotation(size, self.cache_bytes)
        return self._rotations[size]

    def drop(self) -> None:
        """Free the matrices."""
        self._rotations.clear()


def measure(pool: Pool, bench: Bench, formats: Sequence[Format] = FORMATS) -> Iterator[tuple[str, ProcessorSamples]]:
    """Measure step by step, yielding what was just done and the samples so far."""
    samples = ProcessorSamples()
    for size in FOOTPRINTS:
        buffer = rotation(size, 0)[0]
        samples.footprint[size] = [size / t for t in time_read(pool, buffer, PAIRS)]
    yield "read", samples
    for fmt in formats:
        for rows, columns in SHAPES:
            size = packed_size(fmt, rows, columns)
            run = _linear(pool, fmt, bench.matrices(size), rows, columns, 1)
            samples.linear[fmt, size] = _shares(pool, bench, samples, size, run)
        yield f"{fmt} products", samples
        _measure_gemm(pool, bench, fmt, samples)
        yield f"{fmt} prefill", samples
        _measure_attention(pool, bench, fmt, samples)
        yield f"{fmt} attention", samples


Run = Callable[[int], list[float]]


def _shares(pool: Pool, bench: Bench, samples: ProcessorSamples, size: int, run: Run) -> list[float]:
    """bytes/s of `run` over the bytes/s of a plain read, pair by pair."""
    read = read_rate(pool, bench.noise, 1)
    repeats = max(3, round(SLICE_S * read / size))
    found = []
    for _ in range(PAIRS):
        rate = size / median(run(repeats))
        after = read_rate(pool, bench.noise, 1)
        found.append(rate / ((read + after) / 2))
        read = after
        samples.read.append(after)
    return found


def _linear(pool: Pool, fmt: Format, weights: list[Buffer], rows: int, columns: int, tokens: int) -> Run:
    def run(repeats: int) -> list[float]:
        weights.append(weights.pop(0))
        return time_linear(pool, fmt, weights, rows, columns, tokens, repeats)

    return run


def _measure_gemm(pool: Pool, bench: Bench, fmt: Format, samples: ProcessorSamples) -> None:
    rows, columns = GEMM_SHAPE
    weights = bench.matrices(packed_size(fmt, rows, columns))
    for tokens in GEMM_TOKENS:
        times = time_linear(pool, fmt, weights, rows, columns, tokens, PAIRS)
        samples.gemm[fmt, tokens] = [2 * tokens * rows * columns / t for t in times]


def _measure_attention(pool: Pool, bench: Bench, fmt: Format, samples: ProcessorSamples) -> None:
    for context, capacity in CONTEXTS:
        size = size_of(2 * KV_HEADS * HEAD_DIM * context, fmt)
        run = _attention(pool, bench, fmt, HEADS, context, capacity)
        samples.attention[fmt, size] = _shares(pool, bench, samples, size, run)
    context, capacity = CONTEXTS[-1]
    flops = 4 * KV_HEADS * WIDE_GROUP * HEAD_DIM * context
    times = _attention(pool, bench, fmt, KV_HEADS * WIDE_GROUP, context, capacity)(PAIRS)
    samples.wide[fmt] = [flops / t for t in times]


def _attention(pool: Pool, bench: Bench, fmt: Format, heads: int, context: int, capacity: int) -> Run:
    buffers = bench.matrices(size_of(KV_HEADS * HEAD_DIM * capacity, fmt))
    caches = list(zip(buffers[::2], buffers[1::2], strict=False))

    def run(repeats: int) -> list[float]:
        caches.append(caches.pop(0))
        return time_attention(pool, fmt, caches, heads, KV_HEADS, HEAD_DIM, capacity, context, repeats)

    return run
