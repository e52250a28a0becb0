"""How many requests were there, waiting and running, as steps over time: from the table alone."""

from dataclasses import dataclass

import numpy as np

from helmsman.schemas.requests import Floats, Ints
from helmsman.schemas.served_table import ServedTable


@dataclass(frozen=True, slots=True)
class CountOverTime:
    """`count[i]` from `at_s[i]` until `at_s[i + 1]`, ascending; 0 before the first and after the last."""

    at_s: Floats
    count: Ints

    def integral(self) -> float:
        """Request-seconds."""
        return float(np.sum(np.diff(self.at_s) * self.count[:-1]))

    def mean(self) -> float:
        """Return the mean number from the first step to the last."""
        return self.integral() / float(self.at_s[-1] - self.at_s[0])


def thinned(count: int, most: int) -> Ints:
    """Return at most `most` of the places 0 to count - 1, evenly apart, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(np.int64))


def present(served: ServedTable) -> CountOverTime:
    """From arrival to the end; those that were rejected or failed were never there."""
    return _steps(served.arrival_s, served.finish_s)


def running(served: ServedTable) -> CountOverTime:
    """From the first pass that they took part in to the end, pauses included."""
    return _steps(served.started_s, served.finish_s)


def _steps(begin: Floats, end: Floats) -> CountOverTime:
    there = ~np.isnan(begin + end)
    times = np.concatenate([begin[there], end[there]])
    change = np.repeat([1, -1], int(np.sum(there)))
    order = np.argsort(times, kind="stable")
    return CountOverTime(times[order], np.cumsum(change[order]))
