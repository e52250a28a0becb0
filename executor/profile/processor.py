"""One processor: plain reads, matrix products by format and size, decode attention by context.

Every product is measured between two plain reads of the same pool, and kept as its share of them: the ratio
survives what the machine's neighbours do to its bandwidth (rule 1 of measuring)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from operator import attrgetter
from statistics import fmean, harmonic_mean, median
from typing import Any, TypeVar

from helmsman.executor._kernels import Buffer, Pool, packed_size, time_attention, time_linear, time_read
from helmsman.executor.probe import PRODUCT, READ_PIECE, JointProducts, joint_read_rate, probe_pieces, read_rate
from helmsman.executor.profile.buffers import Regions, rotation
from helmsman.executor.profile.quality import VISITS, Point
from helmsman.executor.profile.samples import ProcessorSamples
from helmsman.hwdb.fit import spread
from helmsman.planner.device_rates import input_bytes
from helmsman.schemas.formats import FORMATS, Format, Precision, StoredFormat, size_of
from helmsman.schemas.rounding import DEFAULT_ROUNDING

SHAPES = ((512, 1024), (1024, 1024), (2048, 1536), (4096, 2560), (11008, 4096), (65536, 1024))
"""(rows, columns) of the products: from a small K projection to a head."""
GEMM_SHAPE = PRODUCT
FEW_ROWS = (PRODUCT[0] // 16, PRODUCT[1])
"""A part of the rows takes the same inputs: what is not a sixteenth of a product's time is what these take."""
GEMM_TOKENS = (2, 4, 6, 8, 12, 16, 17, 24, 32, 48, 64, 128, 256)
"""With 17 tokens a product falls to 0.78 of its rate with 16: it is cut into blocks of equal size."""
QUANTISED: tuple[StoredFormat, ...] = ("q8_0", "q4_0")
"""What is measured of the quantised formats; others are priced by the nearest of these (`lowering.nearest_format`)."""
FEW = 32
"""Tokens up to which a product's bytes are a fifth of its time or more: plain reads beside these tell of the memory."""
FEW_SHAPES = ((1024, 1024), (4096, 2560), (65536, 1024))
FEW_TOKENS = (2, 8, 32, 128)
"""Of products of quantised weights: the ends of what the curves of plain ones need, so that a profile stays short."""
F32_TOKENS = (1, *FEW_TOKENS)
"""Token counts of products of quantised weights with f32 activations, which arithmetic bounds even with one token:
weights are dequantised first."""
OTHER_ROUNDINGS: dict[StoredFormat, tuple[Precision, ...]] = {
    "bf16": ("bf16",),
    "q8_0": ("int8", "f32"),
    "q4_0": ("int8", "f32"),
}
"""Precisions of activations that are measured beside the default, by the format of weights."""
CONTEXTS = ((64, 256), (256, 256), (1024, 1024), (4096, 4096))
"""(context, capacity) of decode attention."""
HEADS, KV_HEADS, HEAD_DIM = 16, 8, 128
WIDE_GROUP = 8
PAIRS = 9
READ_BYTES = 64 << 20
"""About, of the part of the pieces that one read takes: it takes as long as the product beside it. With all pieces
reads were a third of a profile."""
JOINT_PARTS = 4
"""The number of these parts that reads by all pools at once take."""
JOINT_PRODUCTS = 16
"""Products by all pools at once that a profile takes at a time; a probe beside a run, of which there are fewer, takes
more (`executor.probe.JOINT_REPEATS`)."""
SLICE_S = 4e-3
"""Each side of a pair runs about this long."""
_SLOWEST = 3.0
"""The largest factor by which a slow core lengthens a product; the thread of a product beyond it was interrupted."""
_FASTEST = 1e13
"""bytes/s of inputs that take nothing."""
FOOTPRINTS = (1 << 20, 8 << 20, 64 << 20)


class Bench:
    """The buffers of a measurement, shared by all pools."""

    def __init__(self, cache_bytes: int) -> None:
        self.cache_bytes = cache_bytes
        self._regions = Regions(cache_bytes)
        self._rotations: dict[int, list[Buffer]] = {}
        self._noise, self._joint = probe_pieces(cache_bytes), JointProducts()
        size = -(-len(self._noise) // max(1, round(self.noise_bytes / READ_BYTES)))
        self._parts = cycle([self._noise[start : start + size] for start in range(0, len(self._noise), size)])

    @property
    def noise_bytes(self) -> int:
        """Bytes of all pieces that plain reads take."""
        return len(self._noise) * READ_PIECE

    def read(self, pool: Pool) -> float:
        """Bytes/s of a plain read of the next part of the pieces. Reads go through all of them in their order, as
        probes beside runs do, so that each has left the caches when its turn comes: two threads read every fourth piece
        5 to 6 % slower, so that steps seemed to be due earlier than they were."""
        return read_rate(pool, next(self._parts))

    def read_together(self, pools: Sequence[Pool]) -> float:
        """Bytes/s of plain reads by all pools at once, each of pieces of its own, of the next parts."""
        return joint_read_rate(pools, [piece for _ in range(JOINT_PARTS) for piece in next(self._parts)])

    def kept_together(self, pools: Sequence[Pool]) -> float:
        """The part of its FLOP/s that a pool keeps while all compute, for a hundredth of a second."""
        return self._joint.kept(pools, JOINT_PRODUCTS)

    def matrices(self, size: int) -> list[Buffer]:
        """Buffers of `size` bytes to walk through."""
        if size not in self._rotations:
            self._rotations[size] = self._regions.rotation(size)
        return self._rotations[size]

    def drop(self) -> None:
        """Free the matrices for others: those of one kind of product are more than half of what all need together."""
        self._rotations.clear()
        self._regions.drop()


Step = tuple[str, list[Point[Any]]]
"""What is measured, and its points, which need the same buffers."""


def steps() -> int:
    """How many steps `measure` has."""
    plain, quantised = len(SHAPES) + 2, len(FEW_SHAPES) + 1
    return 1 + plain * len(FORMATS) + quantised * len(QUANTISED) + sum(map(len, OTHER_ROUNDINGS.values()))


def measure(
    pool: Pool,
    bench: Bench,
    samples: ProcessorSamples,
    pairs: int,
    formats: Sequence[StoredFormat] = (*FORMATS, *QUANTISED),
) -> Iterator[Step]:
    """The steps of measuring a processor into `samples`, `pairs` times each; those of formats that are not among
    `formats` have no points."""
    yield "read", [read_point(pool, bench, samples, pairs)]
    for fmt in FORMATS:
        measured = list(_product_steps(pool, bench, fmt, samples, pairs, (SHAPES, GEMM_TOKENS)))
        measured.append((f"{fmt} attention", list(_attention_points(pool, bench, fmt, samples, pairs))))
        yield from _of_format(measured, fmt in formats)
    for quantised in QUANTISED:
        of_codes = _product_steps(pool, bench, quantised, samples, pairs, (FEW_SHAPES, FEW_TOKENS))
        yield from _of_format(of_codes, quantised in formats)
    for weights, roundings in OTHER_ROUNDINGS.items():
        others = (
            _prefill_step(pool, bench, (weights, other), samples, pairs, F32_TOKENS if other == "f32" else FEW_TOKENS)
            for other in roundings
        )
        yield from _of_format(others, weights in formats)


def _of_format(measured: Iterable[Step], wanted: bool) -> Iterator[Step]:
    """The steps of a format, without points unless it is `wanted`."""
    return ((name, points if wanted else []) for name, points in measured)


@dataclass(frozen=True)
class _Reads:
    """bytes/s of plain reads by footprint, and of scattered pieces beyond every cache (HELM-85)."""

    footprint: dict[int, list[float]]
    scattered: list[float]


def read_point(pool: Pool, bench: Bench, samples: ProcessorSamples, pairs: int) -> Point[_Reads]:
    """Plain reads, `pairs` times each."""

    def run() -> _Reads:
        footprint = {}
        for size in FOOTPRINTS:
            buffer = rotation(size, 0)[0]
            footprint[size] = [size / t for t in time_read(pool, buffer, pairs)]
        return _Reads(footprint, [bench.read(pool) for _ in range(pairs)])

    def keep(found: _Reads, share: float) -> None:
        samples.footprint.update(found.footprint)
        samples.read_bytes = bench.noise_bytes
        samples.add_reads(found.scattered, share)

    return Point("read", run, keep)


@dataclass(frozen=True)
class _Shares:
    """bytes/s of an operation over those of plain reads, and the bytes/s of these reads."""

    shares: list[float]
    reads: list[float]

    @property
    def spread(self) -> float:
        """How far the shares lie apart."""
        return spread(self.shares)


Run = Callable[[int], list[float]]
Walked = TypeVar("Walked")


@dataclass(frozen=True)
class Round:
    """Products that were taken in turn: seconds by tokens, with a matrix of GEMM_SHAPE and with one of FEW_ROWS;
    `read`: bytes/s of plain reads beside those of few tokens."""

    seconds: dict[int, tuple[float, float]]
    read: float


_Work = tuple[Sequence[tuple[int, int]], Sequence[int]]
"""The (rows, columns) of products with one token, and the tokens of products with several."""


def _product_steps(
    pool: Pool, bench: Bench, fmt: StoredFormat, samples: ProcessorSamples, pairs: int, work: _Work
) -> Iterator[Step]:
    shapes, many = work
    for shape in shapes:
        name = f"{fmt} products of {shape[0]} x {shape[1]}"
        yield name, [_product_point(name, pool, bench, fmt, samples, pairs, shape)]
    yield _prefill_step(pool, bench, (fmt, DEFAULT_ROUNDING.of(fmt)), samples, pairs, many)


def _prefill_step(
    pool: Pool,
    bench: Bench,
    product: tuple[StoredFormat, Precision],
    samples: ProcessorSamples,
    pairs: int,
    many: Sequence[int],
) -> Step:
    """Return the step that measures matrix products of each token count in `many`. `product`: the format of the weights
    and the precision of the activations."""
    fmt, rounding = product
    name = f"{fmt} prefill in {rounding}"
    rounds = -(-(pairs // 2 + 1) // VISITS)
    sizes = packed_size(fmt, *GEMM_SHAPE), packed_size(fmt, *FEW_ROWS)

    def more(before: list[Round]) -> list[Round]:
        weights, few = map(bench.matrices, sizes)
        return before + _in_turn(pool, bench, product, (weights, few), many, rounds)

    def keep(found: list[Round], share: float) -> None:
        samples.add_reads([one.read for one in found], share)
        for tokens, (flops, inputs) in _rates(found, sizes, median(samples.read)).items():
            samples.gemm[fmt, rounding, tokens], samples.inputs[fmt, rounding, tokens] = flops, inputs
            samples.disturbed[f"gemm {rounding}", fmt, tokens] = share

    return name, [Point(name, lambda: more([]), keep, more=more)]


def _product_point(
    group: str,
    pool: Pool,
    bench: Bench,
    fmt: StoredFormat,
    samples: ProcessorSamples,
    pairs: int,
    shape: tuple[int, int],
) -> Point[_Shares]:
    size = packed_size(fmt, *shape)

    def run() -> _Shares:
        return _shares(
            pool, bench, size, _linear(pool, (fmt, DEFAULT_ROUNDING.of(fmt)), bench.matrices(size), *shape, 1), pairs
        )

    def keep(found: _Shares, share: float) -> None:
        samples.linear[fmt, size] = found.shares
        samples.disturbed["linear", fmt, size] = share
        samples.add_reads(found.reads, share)

    return Point(group, run, keep, attrgetter("spread"))


def _in_turn(
    pool: Pool,
    bench: Bench,
    product: tuple[StoredFormat, Precision],
    weights: tuple[list[Buffer], list[Buffer]],
    many: Sequence[int],
    rounds: int,
) -> list[Round]:
    """So many rounds in which all numbers of tokens take turns, each once for its code and activations to come, and
    once to count; `weights`: of GEMM_SHAPE and of FEW_ROWS."""
    shapes = tuple(zip(weights, (GEMM_SHAPE, FEW_ROWS), strict=True))
    run = {tokens: [_linear(pool, product, some, *shape, tokens) for some, shape in shapes] for tokens in many}
    few = [tokens for tokens in many if tokens <= FEW]

    def timed(some: Sequence[int]) -> dict[int, tuple[float, float]]:
        return {tokens: (run[tokens][0](2)[1], run[tokens][1](2)[1]) for tokens in some}

    timed_rounds = []
    for _ in range(rounds):
        before, waiting, after = bench.read(pool), timed(few), bench.read(pool)
        timed_rounds.append(Round({**waiting, **timed(many[len(few) :])}, harmonic_mean([before, after])))
    return timed_rounds


def _rates(rounds: Sequence[Round], sizes: tuple[int, int], read: float) -> dict[int, tuple[list[float], list[float]]]:
    """By tokens the FLOP/s of products less what their inputs take, and the bytes/s of these inputs; `sizes`: bytes of
    a matrix of GEMM_SHAPE and of one of FEW_ROWS.

    What a product's bytes take at the plain reads beside it moves with the memory, and is put at the bytes/s `read` of
    the whole profile; the rest moves with the core, of which the product with most tokens tells, and is put at the
    median of the rounds: a core's speed of arithmetic changes by a third and more within seconds, and by half in spells
    of some, a memory's by a tenth, and by a quarter in spells of minutes."""
    most, part = max(rounds[0].seconds), FEW_ROWS[0] / GEMM_SHAPE[0]
    fastest = min(one.seconds[most][0] for one in rounds)
    slower = [min(one.seconds[most][0] / fastest, _SLOWEST) for one in rounds]
    usual = median(slower)
    rates = {}
    for tokens in rounds[0].seconds:
        size, flops = input_bytes(tokens, GEMM_SHAPE[1]), 2.0 * tokens * GEMM_SHAPE[0] * GEMM_SHAPE[1]
        took = []
        for slow, one in zip(slower, rounds, strict=True):
            whole, few = (
                _restated(seconds, moved / one.read, one.read / read, usual / slow)
                for seconds, moved in zip(one.seconds[tokens], sizes, strict=True)
            )
            took.append((whole, few))
        taken = [max((few - part * whole) / (1 - part), size / _FASTEST) for whole, few in took]
        inputs = median(taken)
        rates[tokens] = [flops / (whole - min(inputs, whole / 2)) for whole, _ in took], [size / each for each in taken]
    return rates


def _restated(seconds: float, moving: float, memory: float, core: float) -> float:
    """Convert the `seconds` of a product to other speeds: the `moving` seconds in which its bytes are read take
    `memory` times as long, its arithmetic `core` times."""
    waited = min(moving, seconds)
    return memory * waited + core * (seconds - waited)


def _shares(pool: Pool, bench: Bench, size: int, run: Run, pairs: int) -> _Shares:
    """`run`, which reads `size` bytes, against plain reads, pair by pair; the mean of many runs, as a step has many."""
    read = bench.read(pool)
    repeats = max(3, round(SLICE_S * read / size))
    found = _Shares([], [])
    for _ in range(pairs):
        rate = size / fmean(run(repeats))
        after = bench.read(pool)
        found.shares.append(rate / ((read + after) / 2))
        found.reads.append(after)
        read = after
    return found


def _linear(
    pool: Pool, product: tuple[StoredFormat, Precision], weights: list[Buffer], rows: int, columns: int, tokens: int
) -> Run:
    fmt, rounding = product

    def run(repeats: int) -> list[float]:
        return time_linear(pool, fmt, _next(weights, repeats), rows, columns, tokens, repeats, rounding)

    return run


def _attention_points(
    pool: Pool, bench: Bench, fmt: Format, samples: ProcessorSamples, pairs: int
) -> Iterator[Point[Any]]:
    """Decode attention by context, and with groups of heads so wide that arithmetic bounds it."""
    group = f"{fmt} attention"
    for context, capacity in CONTEXTS:
        yield _attention_point(group, pool, bench, fmt, samples, pairs, context, capacity)
    context, capacity = CONTEXTS[-1]
    flops = 4 * KV_HEADS * WIDE_GROUP * HEAD_DIM * context

    def run() -> list[float]:
        times = _attention(pool, bench, fmt, KV_HEADS * WIDE_GROUP, context, capacity)(pairs)
        return [flops / t for t in times]

    def keep(found: list[float], share: float) -> None:
        samples.wide[fmt] = found
        samples.disturbed["wide", fmt, 0] = share

    yield Point(group, run, keep)


def _attention_point(
    group: str,
    pool: Pool,
    bench: Bench,
    fmt: Format,
    samples: ProcessorSamples,
    pairs: int,
    context: int,
    capacity: int,
) -> Point[_Shares]:
    size = size_of(2 * KV_HEADS * HEAD_DIM * context, fmt)

    def run() -> _Shares:
        return _shares(pool, bench, size, _attention(pool, bench, fmt, HEADS, context, capacity), pairs)

    def keep(found: _Shares, share: float) -> None:
        samples.attention[fmt, size] = found.shares
        samples.disturbed["attention", fmt, size] = share
        samples.add_reads(found.reads, share)

    return Point(group, run, keep, attrgetter("spread"))


def _attention(pool: Pool, bench: Bench, fmt: Format, heads: int, context: int, capacity: int) -> Run:
    buffers = bench.matrices(size_of(KV_HEADS * HEAD_DIM * capacity, fmt))
    caches = list(zip(buffers[::2], buffers[1::2], strict=False))

    def run(repeats: int) -> list[float]:
        turn = _next(caches, repeats)
        return time_attention(pool, fmt, turn, heads, KV_HEADS, HEAD_DIM, capacity, context, repeats)

    return run


def _next(walk: list[Walked], count: int) -> list[Walked]:
    """The buffers of a walk, from those on that the time before left out, so that all have their turn before one has
    its second; the `walk` goes on behind the next `count`."""
    turn = list(walk)
    count %= len(walk)
    walk[:] = walk[count:] + walk[:count]
    return turn
