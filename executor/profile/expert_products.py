"""Products with experts: rows gathered by expert, one or a few of each, in the formats that experts are kept in.

A linear layer of as many bytes is one matrix and every row is its own; experts are several smaller ones, of each of
which few rows are gathered, and what was chosen decides where reads begin. Of a token alone the share of plain reads
counts, of several tokens of an expert FLOP/s in every precision of activations, gathering and activations included."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from operator import attrgetter
from statistics import fmean
from typing import Any

import numpy as np

from helmsman.executor._kernels import Buffer, Pool, experts, packed_size
from helmsman.executor.profile.bench import MeasurementBuffers
from helmsman.executor.profile.quality import MeasuredPoint
from helmsman.executor.profile.samples import ProcessorSamples
from helmsman.executor.profile.shares import ReadShares, read_shares
from helmsman.schemas.formats import Precision, StoredFormat
from helmsman.schemas.rounding import DEFAULT_ROUNDING

SHAPE = (768, 2048)
"""(rows, columns) of gate and up of an expert, down's the other way round: those of Qwen3-30B-A3B."""
CHOSEN = (2, 8)
"""Experts of a pass with one token: as many matrices of gate are one operation."""
MATRICES = 3
"""Gate, up and down."""
TOKENS = {2: 8, 4: 8, 8: 8, 16: 4, 64: 1}
"""Rows of every expert, and how many experts a pass has: fewer where they take longer, as prompts' do."""
ROUNDS = 4
"""Samples of products of several rows."""
SLICE_S = 4e-3
"""Seconds of the passes of one sample, about."""
_SMALL = 1e-3
"""About the size of inputs: what comes out stays a plain number."""


Passes = Callable[[], "ExpertPasses"]
"""Makes the experts of a measurement, of buffers that are there while it lasts."""


@dataclass(frozen=True)
class ExpertPasses:
    """The experts of a measurement: `matrices` of `fmt`, as they come, three to an expert, so that a pass after the
    other takes other ones."""

    pool: Pool
    fmt: StoredFormat
    matrices: list[Buffer]
    turn: Iterator[int]

    @property
    def count(self) -> int:
        """Return the number of experts."""
        return len(self.matrices) // MATRICES

    def seconds(self, tokens: int, chosen: int, passes: int, rounding: Precision | None = None) -> list[float]:
        """Return the seconds of passes in which every one of `tokens` rows takes the same `chosen` experts;
        `rounding`: of activations, by default as kernels round by themselves."""
        rows, columns = SHAPE
        groups = max(1, self.count // chosen)
        first = [chosen * (next(self.turn) % groups) for _ in range(passes)]
        ids = np.array([[range(start, start + chosen)] * tokens for start in first], np.int32)
        x = np.full((tokens, columns), _SMALL, np.float32)
        weights, y = np.full(ids.shape, 1.0 / chosen, np.float32), np.zeros_like(x)
        gate, up, down = (self.matrices[place : MATRICES * self.count : MATRICES] for place in range(MATRICES))
        return experts(
            self.pool, gate, up, down, self.fmt, self.fmt, columns, rows, ids.data, weights.data, x.data, y.data,
            tokens, chosen, activations=rounding or DEFAULT_ROUNDING.of_experts(self.fmt), passes=passes,
        )  # fmt: skip


def expert_points(
    pool: Pool,
    bench: MeasurementBuffers,
    fmt: StoredFormat,
    roundings: Sequence[Precision],
    samples: ProcessorSamples,
    pairs: int,
) -> list[MeasuredPoint[Any]]:
    """Return the points that measure products with experts in `fmt` into `samples`, `pairs` times each; `roundings`:
    of activations of several tokens."""
    size, turn = packed_size(fmt, *SHAPE), count()

    def passes() -> ExpertPasses:
        return ExpertPasses(pool, fmt, bench.matrices(size), turn)

    alone = [_alone_point(pool, bench, passes, chosen, (fmt, chosen * size), samples, pairs) for chosen in CHOSEN]
    return [*alone, *(_several_point(passes, fmt, rounding, samples) for rounding in roundings)]


def _alone_point(
    pool: Pool,
    bench: MeasurementBuffers,
    passes: Passes,
    chosen: int,
    product: tuple[StoredFormat, int],
    samples: ProcessorSamples,
    pairs: int,
) -> MeasuredPoint[ReadShares]:
    """Of one token; `product`: the format, and bytes of the chosen experts' matrices of one kind."""
    fmt, size = product

    def run() -> ReadShares:
        made = passes()
        return read_shares(pool, bench, MATRICES * size, lambda times: made.seconds(1, chosen, times), pairs)

    def keep(shares: ReadShares, share: float) -> None:
        samples.experts[fmt, size] = shares.shares
        samples.disturbed["experts", fmt, size] = share
        samples.add_reads(shares.reads, share)

    return MeasuredPoint(f"{fmt} experts", run, keep, attrgetter("spread"))


def _several_point(
    passes: Passes, fmt: StoredFormat, rounding: Precision, samples: ProcessorSamples
) -> MeasuredPoint[dict[int, list[float]]]:
    """FLOP/s by the number of tokens of every expert; numbers take turns."""
    rows, columns = SHAPE

    def run() -> dict[int, list[float]]:
        made = passes()
        rates: dict[int, list[float]] = {tokens: [] for tokens in TOKENS}
        first = {tokens: made.seconds(tokens, chosen, 1, rounding)[0] for tokens, chosen in TOKENS.items()}
        for _ in range(ROUNDS):
            for tokens, chosen in TOKENS.items():
                flops = 2.0 * MATRICES * rows * columns * chosen * tokens
                many = max(1, round(SLICE_S / first[tokens]))
                rates[tokens].append(flops / fmean(made.seconds(tokens, chosen, many, rounding)))
        return rates

    def keep(rates: dict[int, list[float]], share: float) -> None:
        for tokens, of in rates.items():
            samples.expert_products[fmt, rounding, tokens] = of
            samples.disturbed[f"expert products {rounding}", fmt, tokens] = share

    return MeasuredPoint(f"{fmt} experts in {rounding}", run, keep)
