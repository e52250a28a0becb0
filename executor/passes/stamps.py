"""Where the times of a pass's tasks are among its stamps, and what they say of tasks that were done chunk by chunk."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from helmsman.executor.passes.pass_times import Times

Place = tuple[int, int]
"""The stamps at which something began and ended."""


@dataclass(frozen=True)
class TaskStamps:
    """`places`: of every task, each time it was done; `divided`: tasks that chunks went through one by one."""

    places: Sequence[Sequence[Place]]
    divided: Sequence[tuple[int, ...]]

    def times(self, taken: Times) -> tuple[Times, Times]:
        """Starts and ends (passes, tasks) from stamps (passes, n)."""
        first = np.array([places[0] for places in self.places], np.intp).reshape(-1, 2)
        starts, ends = taken[:, first[:, 0]], taken[:, first[:, 1]]
        for tasks in self.divided:
            places = np.array([self.places[task] for task in tasks])
            starts[:, tasks], ends[:, tasks] = np.moveaxis(_as_one(taken[:, places]), 2, 0)
        return starts, ends


def _as_one(times: Times) -> Times:
    """Starts and ends (passes, tasks, 2) of tasks (passes, tasks, chunks, 2) as if one chunk had been all.

    A chunk begins when the one before has been through all tasks. A task begins as long after the first chunk as it
    did after its own, all chunks together: so its seconds are those it took, waits stay where they were and spans
    within those in which their lanes worked on the chunks."""
    done = times.max(axis=(1, 3))
    begun = np.hstack([times[:, :, :1].min(axis=(1, 3)), done[:, :-1]])
    return np.asarray(begun[:, :1, None] + (times - begun[:, None, :, None]).sum(axis=2))
