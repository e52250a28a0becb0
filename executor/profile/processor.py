"""One processor: plain reads, matrix products by format and size, those with experts, decode attention by context.

Every product is measured between two plain reads of the same pool, and kept as its share of them (`shares.py`)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from helmsman.executor._kernels import Pool, packed_size, time_attention, time_read
from helmsman.executor.profile.bench import MeasurementBuffers, Run, linear_run, next_of
from helmsman.executor.profile.buffers import rotation
from helmsman.executor.profile.expert_products import expert_points
from helmsman.executor.profile.prompts import Step, prompt_step
from helmsman.executor.profile.quality import MeasuredPoint
from helmsman.executor.profile.samples import ProcessorSamples
from helmsman.executor.profile.shares import ReadShares, read_shares
from helmsman.schemas.formats import FORMATS, Format, Precision, StoredFormat, size_of
from helmsman.schemas.rounding import DEFAULT_ROUNDING

SHAPES = ((512, 1024), (1024, 1024), (2048, 1536), (4096, 2560), (11008, 4096), (65536, 1024))
"""(rows, columns) of the products: from a small K projection to a head."""
GEMM_TOKENS = (2, 4, 6, 8, 12, 16, 17, 24, 32, 48, 64, 128, 512)
"""With 17 tokens a product falls to 0.78 of its rate with 16: it is cut into blocks of equal size."""
QUANTISED: tuple[StoredFormat, ...] = ("q8_0", "q4_0", "mxfp4")
"""The quantised formats that are measured; others are priced by the nearest of these (`lowering.nearest_format`)."""
FEW_SHAPES = ((1024, 1024), (4096, 2560), (65536, 1024))
FEW_TOKENS = (2, 8, 32, 128, 512)
"""Of products of quantised weights: the ends of what the curves of plain ones need, so that a profile stays short."""
F32_TOKENS = (1, *FEW_TOKENS)
"""Token counts of products of quantised weights with f32 activations, which arithmetic bounds even with one token:
weights are dequantised first."""
EXPERTS: tuple[StoredFormat, ...] = ("bf16", *QUANTISED)
"""Formats of experts that are measured."""
OTHER_ROUNDINGS: dict[StoredFormat, tuple[Precision, ...]] = {
    "bf16": ("bf16",),
    "q8_0": ("bf16", "int8", "f32"),
    "q4_0": ("bf16", "int8", "f32"),
    "mxfp4": ("bf16", "int8", "f32"),
}
"""Precisions of activations that are measured beside the default, by the format of weights."""
CONTEXTS = ((64, 256), (256, 256), (1024, 1024), (4096, 4096))
"""(context, capacity) of decode attention."""
HEADS = 16
KV_HEADS = 8
HEAD_DIM = 128
WIDE_GROUP = 8
PAIRS = 9
FOOTPRINTS = (1 << 20, 8 << 20, 64 << 20)


def steps() -> int:
    """How many steps `measure` has."""
    plain, quantised = len(SHAPES) + 2, len(FEW_SHAPES) + 1
    rounded = sum(map(len, OTHER_ROUNDINGS.values()))
    return 1 + plain * len(FORMATS) + quantised * len(QUANTISED) + rounded + len(EXPERTS)


def measure(
    pool: Pool,
    bench: MeasurementBuffers,
    samples: ProcessorSamples,
    pairs: int,
    formats: Sequence[StoredFormat] = (*FORMATS, *QUANTISED),
    experts: Sequence[StoredFormat] = EXPERTS,
) -> Iterator[Step]:
    """The steps of measuring a processor into `samples`, `pairs` times each; those of formats that are not among
    `formats`, or of experts among `experts`, have no points."""
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
            prompt_step(pool, bench, (weights, other), samples, pairs, F32_TOKENS if other == "f32" else FEW_TOKENS)
            for other in roundings
        )
        yield from _of_format(others, weights in formats)
    for kept in EXPERTS:
        ways = (DEFAULT_ROUNDING.of_experts(kept), *OTHER_ROUNDINGS[kept])
        yield f"{kept} experts", expert_points(pool, bench, kept, ways, samples, pairs) if kept in experts else []


def _of_format(measured: Iterable[Step], wanted: bool) -> Iterator[Step]:
    """The steps of a format, without points unless it is `wanted`."""
    return ((name, points if wanted else []) for name, points in measured)


@dataclass(frozen=True)
class _Reads:
    """bytes/s of plain reads by footprint, and of scattered pieces beyond every cache (HELM-85)."""

    footprint: dict[int, list[float]]
    scattered: list[float]


def read_point(pool: Pool, bench: MeasurementBuffers, samples: ProcessorSamples, pairs: int) -> MeasuredPoint[_Reads]:
    """Plain reads, `pairs` times each."""

    def run() -> _Reads:
        footprint = {}
        for size in FOOTPRINTS:
            buffer = rotation(size, 0)[0]
            footprint[size] = [size / t for t in time_read(pool, buffer, pairs)]
        return _Reads(footprint, [bench.read(pool) for _ in range(pairs)])

    def keep(reads: _Reads, share: float) -> None:
        samples.footprint.update(reads.footprint)
        samples.read_bytes = bench.noise_bytes
        samples.add_reads(reads.scattered, share)

    return MeasuredPoint("read", run, keep)


_Work = tuple[Sequence[tuple[int, int]], Sequence[int]]
"""The (rows, columns) of products with one token, and the tokens of products with several."""


def _product_steps(
    pool: Pool, bench: MeasurementBuffers, fmt: StoredFormat, samples: ProcessorSamples, pairs: int, work: _Work
) -> Iterator[Step]:
    shapes, many = work
    for shape in shapes:
        name = f"{fmt} products of {shape[0]} x {shape[1]}"
        yield name, [_product_point(name, pool, bench, fmt, samples, pairs, shape)]
    yield prompt_step(pool, bench, (fmt, DEFAULT_ROUNDING.of(fmt)), samples, pairs, many)


def _product_point(
    group: str,
    pool: Pool,
    bench: MeasurementBuffers,
    fmt: StoredFormat,
    samples: ProcessorSamples,
    pairs: int,
    shape: tuple[int, int],
) -> MeasuredPoint[ReadShares]:
    size = packed_size(fmt, *shape)

    def run() -> ReadShares:
        return read_shares(
            pool, bench, size, linear_run(pool, (fmt, DEFAULT_ROUNDING.of(fmt)), bench.matrices(size), *shape, 1), pairs
        )

    def keep(shares: ReadShares, share: float) -> None:
        samples.linear[fmt, size] = shares.shares
        samples.disturbed["linear", fmt, size] = share
        samples.add_reads(shares.reads, share)

    return MeasuredPoint(group, run, keep, attrgetter("spread"))


def _attention_points(
    pool: Pool, bench: MeasurementBuffers, fmt: Format, samples: ProcessorSamples, pairs: int
) -> Iterator[MeasuredPoint[Any]]:
    """Decode attention by context, and with groups of heads so wide that arithmetic bounds it."""
    group = f"{fmt} attention"
    for context, capacity in CONTEXTS:
        yield _attention_point(group, pool, bench, fmt, samples, pairs, context, capacity)
    context, capacity = CONTEXTS[-1]
    flops = 4 * KV_HEADS * WIDE_GROUP * HEAD_DIM * context

    def run() -> list[float]:
        times = _attention(pool, bench, fmt, KV_HEADS * WIDE_GROUP, context, capacity)(pairs)
        return [flops / t for t in times]

    def keep(rates: list[float], share: float) -> None:
        samples.wide[fmt] = rates
        samples.disturbed["wide", fmt, 0] = share

    yield MeasuredPoint(group, run, keep)


def _attention_point(
    group: str,
    pool: Pool,
    bench: MeasurementBuffers,
    fmt: Format,
    samples: ProcessorSamples,
    pairs: int,
    context: int,
    capacity: int,
) -> MeasuredPoint[ReadShares]:
    size = size_of(2 * KV_HEADS * HEAD_DIM * context, fmt)

    def run() -> ReadShares:
        return read_shares(pool, bench, size, _attention(pool, bench, fmt, HEADS, context, capacity), pairs)

    def keep(shares: ReadShares, share: float) -> None:
        samples.attention[fmt, size] = shares.shares
        samples.disturbed["attention", fmt, size] = share
        samples.add_reads(shares.reads, share)

    return MeasuredPoint(group, run, keep, attrgetter("spread"))


def _attention(pool: Pool, bench: MeasurementBuffers, fmt: Format, heads: int, context: int, capacity: int) -> Run:
    buffers = bench.matrices(size_of(KV_HEADS * HEAD_DIM * capacity, fmt))
    caches = list(zip(buffers[::2], buffers[1::2], strict=False))

    def run(repeats: int) -> list[float]:
        turn = next_of(caches, repeats)
        return time_attention(pool, fmt, turn, heads, KV_HEADS, HEAD_DIM, capacity, context, repeats)

    return run
