"""An operation's bytes/s as a share of those of plain reads between which it runs, pair by pair: the ratio survives
what the machine's neighbours do to its bandwidth (rule 1 of measuring)."""

from dataclasses import dataclass
from statistics import fmean

from helmsman.executor._kernels import Pool
from helmsman.executor.profile.bench import MeasurementBuffers, Run
from helmsman.hwdb.fit import spread

SLICE_S = 4e-3
"""Each side of a pair runs about this long."""


@dataclass(frozen=True)
class ReadShares:
    """bytes/s of an operation over those of plain reads, and the bytes/s of these reads."""

    shares: list[float]
    reads: list[float]

    @property
    def spread(self) -> float:
        """How far the shares lie apart."""
        return spread(self.shares)


def read_shares(pool: Pool, bench: MeasurementBuffers, size: int, run: Run, pairs: int) -> ReadShares:
    """`run`, which reads `size` bytes, against plain reads, pair by pair; the mean of many runs, as a step has many."""
    read = bench.read(pool)
    repeats = max(3, round(SLICE_S * read / size))
    shares = ReadShares([], [])
    for _ in range(pairs):
        rate = size / fmean(run(repeats))
        after = bench.read(pool)
        shares.shares.append(rate / ((read + after) / 2))
        shares.reads.append(after)
        read = after
    return shares
