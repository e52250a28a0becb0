"""The time of each operation of a range on a PyTorch device.

A mark between two operations delays them (3 us in a graph of an H100, where an operation takes 6), so a range is marked
in two passes, and the time that it takes in later ones is divided as it was in the second: the first loads libraries
and graphs."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from helmsman.executor.devices.torch.marks import Mark

Range = tuple[int, int, int, int, bool, int]
"""The stage, first and last operation, tokens, whether they are the last of a pass, and the past (of one token the
bucket that it is in)."""


PASSES = 2
"""In which a range is marked."""


class OperationTimes:
    """Seconds of every operation of those ranges that have been marked."""

    def __init__(self) -> None:
        self._known: dict[Range, NDArray[np.float64]] = {}
        self._latest: dict[tuple[int | bool, ...], NDArray[np.float64]] = {}
        self._taken: dict[Range, int] = {}

    def known(self, key: Range) -> bool:
        """Whether a range has been marked often enough."""
        return self._taken.get(key, 0) >= PASSES

    def keep(self, key: Range, marks: Sequence[Mark]) -> None:
        """Take the seconds between `marks`: before the first operation, and after each that was done."""
        marks[-1].wait()
        self._known[key] = np.array([after.since(before) for before, after in pairwise(marks)])
        self._latest[key[:-1]] = self._known[key]
        self._taken[key] = self._taken.get(key, 0) + 1

    def of(self, key: Range, count: int) -> NDArray[np.float64]:
        """Return the seconds of the range's `count` operations: those after another past while it has not been marked,
        zeros where no such range has."""
        seconds = np.zeros(count)
        known = self._known.get(key, self._latest.get(key[:-1], seconds[:0]))
        seconds[: len(known)] = known
        return seconds
