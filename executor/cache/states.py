"""The states of mixers as rows: what all operations of one memory keep of a sequence, copied and moved together."""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from helmsman.executor.devices.base import DeviceMemory
from helmsman.executor.devices.parts import Buffer
from helmsman.executor.devices.value_sizes import F32_BYTES

RowPairs = Sequence[tuple[int, int]]
"""Rows that are written, and those that they are copies of."""


class StateRows:
    """`rows` states of everything that keeps some in one memory, in one buffer: of every operation f32 (rows, width),
    in the order in which operations ask for their part. `row_bytes`: of all of them together.

    Raises InfeasibleError when it does not fit the memory."""

    def __init__(self, memory: DeviceMemory, rows: int, row_bytes: int, what: str) -> None:
        self.buffer, self.rows, self._row_bytes = memory.alloc(rows * row_bytes, what), rows, row_bytes
        self._sizes: list[int] = []

    def take(self, width: int) -> Buffer:
        """Return f32 (rows, width): the part of one more operation."""
        before = sum(self._sizes)
        self._sizes.append(F32_BYTES * width)
        return self.buffer.part(self.rows * before, self.rows * self._sizes[-1])

    def elsewhere(self, memory: DeviceMemory, rows: int, what: str) -> "StateRows":
        """Return rows of the same operations, all of which have their part, in another memory."""
        assert sum(self._sizes) == self._row_bytes, "all states have a place"
        other = StateRows(memory, rows, self._row_bytes, what)
        other._sizes = self._sizes
        return other

    def pieces(self, pairs: RowPairs, source: "StateRows") -> NDArray[np.int64]:
        """Return (n, 3): target offset, source offset and bytes of copies of rows of `source` to rows of these."""
        starts = accumulate(self._sizes, initial=0)
        made = [
            (self.rows * start + target * size, source.rows * start + row * size, size)
            for start, size in zip(starts, self._sizes, strict=False)
            for target, row in pairs
        ]
        return np.array(made, np.int64).reshape(-1, 3)
