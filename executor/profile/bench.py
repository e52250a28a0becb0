"""Allocates the buffers that all measurements of a processor read, and times plain memory reads to compare with."""

from collections.abc import Callable, Sequence
from itertools import cycle
from typing import TypeVar

from helmsman.executor._kernels import Buffer, Pool, time_linear
from helmsman.executor.devices.probe import READ_PIECE, JointProductProbe, joint_read_rate, probe_pieces, read_rate
from helmsman.executor.profile.buffers import ReadRegions
from helmsman.schemas.formats import Precision, StoredFormat

READ_BYTES = 64 << 20
"""About, of the part of the pieces that one read takes: it takes as long as the product beside it. With all pieces
reads were a third of a profile."""
JOINT_PARTS = 4
"""The number of these parts that reads by all pools at once take."""
JOINT_PRODUCTS = 16
"""Products by all pools at once that a profile takes at a time; a probe beside a run, of which there are fewer, takes
more (`executor.devices.probe.JOINT_REPEATS`)."""
Run = Callable[[int], list[float]]
"""Repeats something so many times, and returns the seconds of each."""
Walked = TypeVar("Walked")


class MeasurementBuffers:
    """The buffers of a measurement, shared by all pools."""

    def __init__(self, cache_bytes: int) -> None:
        self.cache_bytes = cache_bytes
        self._regions = ReadRegions(cache_bytes)
        self._rotations: dict[int, list[Buffer]] = {}
        self._noise, self._joint = probe_pieces(cache_bytes), JointProductProbe()
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


def linear_run(
    pool: Pool, product: tuple[StoredFormat, Precision], weights: list[Buffer], rows: int, columns: int, tokens: int
) -> Run:
    """Products of `tokens` rows that walk through `weights`, (rows, columns) each; `product`: the format of the weights
    and the precision of the activations."""
    fmt, rounding = product

    def run(repeats: int) -> list[float]:
        return time_linear(pool, fmt, next_of(weights, repeats), rows, columns, tokens, repeats, rounding)

    return run


def next_of(walk: list[Walked], count: int) -> list[Walked]:
    """The buffers of a walk, from those on that the time before left out, so that all have their turn before one has
    its second; the `walk` goes on behind the next `count`."""
    turn = list(walk)
    count %= len(walk)
    walk[:] = walk[count:] + walk[:count]
    return turn
