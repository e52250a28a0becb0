"""When the tasks of the passes of one kind ran, and what they moved."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.float64]
NOT_MOVED = -1
"""The value in `PassTimes.moved` of tasks that are not transfers."""


@dataclass(frozen=True)
class PassTimes:
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


@dataclass(frozen=True, slots=True)
class PageTimes:
    """The pages of caches with a window that moved and were read in one pass: names as lowering gives them, seconds
    (n, 2), bytes moved (n,). What is named here as well as without pages was done page by page."""

    names: tuple[str, ...]
    times: Times
    moved: NDArray[np.int64]


def together(page_times: Sequence[PageTimes]) -> PageTimes:
    """The windows of several memories in one pass."""
    names = tuple(name for page_time in page_times for name in page_time.names)
    return PageTimes(
        names,
        np.concatenate([page_time.times for page_time in page_times]),
        np.hstack([page_time.moved for page_time in page_times]),
    )


def with_pages(recorded: PassTimes, pages: Sequence[PageTimes]) -> Iterator[PassTimes]:
    """`recorded` with the pages of every pass: passes one after the other that moved the same are together."""
    for names, group in groupby(range(len(pages)), lambda row: pages[row].names):
        rows = list(group)
        kept = [place for place, name in enumerate(recorded.tasks) if name not in set(names)]
        tasks = (*(recorded.tasks[place] for place in kept), *names)
        times = np.array([pages[row].times for row in rows]).reshape(len(rows), len(names), 2)
        moved = np.array([pages[row].moved for row in rows], np.int64).reshape(len(rows), len(names))
        yield PassTimes(
            recorded.passes[rows],
            tasks,
            np.hstack([recorded.starts[np.ix_(rows, kept)], times[:, :, 0]]),
            np.hstack([recorded.ends[np.ix_(rows, kept)], times[:, :, 1]]),
            np.hstack([recorded.moved[np.ix_(rows, kept)], moved]),
        )
