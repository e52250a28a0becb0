"""When the tasks of the passes of one kind ran, and what they moved."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]
NOT_MOVED = -1
"""What `Recorded.moved` holds for tasks that are not transfers."""


@dataclass(frozen=True)
class Recorded:
    """`passes` (n,): which passes of a run; `starts`, `ends` (n, tasks): seconds of CLOCK_MONOTONIC.

    `tasks`: names as lowering gives them, without the iteration; `moved` (n, tasks): bytes of transfers."""

    passes: NDArray[np.int64]
    tasks: tuple[str, ...]
    starts: Times
    ends: Times
    moved: NDArray[np.int64]

    def busy_s(self) -> Times:
        """Seconds of every pass in which any task ran, (n,)."""
        if not self.tasks:
            return np.zeros(len(self.passes))
        order = np.argsort(self.starts, axis=1)
        starts, ends = (np.take_along_axis(times, order, axis=1) for times in (self.starts, self.ends))
        reached = np.maximum.accumulate(ends, axis=1)
        idle = np.maximum(0.0, starts[:, 1:] - reached[:, :-1]).sum(axis=1)
        return np.asarray(reached[:, -1] - starts[:, 0] - idle)
