"""Sums and quantiles of gaps between tokens, exact over weighted arithmetic runs and without listing the gaps."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import floor

import numpy as np
from numpy.typing import NDArray

from helmsman.schemas.requests import Floats, Ints
from helmsman.schemas.served_table import Gaps


@dataclass(frozen=True, slots=True)
class Runs:
    """Runs of values `first` + i x `step`, 0 <= i < `steps`, each value `weight` times; steps never negative."""

    first: Floats
    step: Floats
    steps: Ints
    weight: Ints

    def count(self) -> int:
        """How many values there are."""
        return int(np.sum(self.steps * self.weight))

    def mean(self) -> float:
        """Return the mean of all values."""
        sums = self.weight * self.steps * (self.first + self.step * ((self.steps - 1) / 2.0))
        return float(np.sum(sums)) / self.count()

    def last(self) -> Floats:
        """Return the largest value of each run."""
        return self.first + self.step * (self.steps - 1)

    def only(self, kept: NDArray[np.bool_]) -> "Runs":
        """Some of the runs."""
        return Runs(self.first[kept], self.step[kept], self.steps[kept], self.weight[kept])

    def at_most(self, limit: float) -> Ints:
        """How many steps of each run are <= `limit`."""
        with np.errstate(divide="ignore", invalid="ignore"):
            reached = np.floor((limit - self.first) / self.step) + 1.0
        level = np.where(self.first <= limit, self.steps, 0)
        counts: Ints = np.where(self.step > 0.0, np.clip(reached, 0.0, self.steps), level).astype(np.int64)
        return counts

    def values_at_most(self, limit: float) -> int:
        """How many values are <= `limit`."""
        return int(np.sum(self.at_most(limit) * self.weight))


def runs_of(gaps: Gaps, on_cpu: bool | None = None) -> Runs:
    """Return all gaps, or those of requests whose attention was on the host (or was not)."""
    kept = np.ones(len(gaps.steps), np.bool_) if on_cpu is None else gaps.on_cpu == on_cpu
    falling = gaps.step_s < 0.0
    first = np.where(falling, gaps.first_s + gaps.step_s * (gaps.steps - 1), gaps.first_s)
    return Runs(first, np.abs(gaps.step_s), gaps.steps, gaps.weight).only(kept)


def quantiles(runs: Runs, shares: Sequence[float]) -> Iterator[float]:
    """Yield the quantiles (0 to 1) of all values, linear between neighbouring ranks (numpy's default); at least one
    value."""
    ends, last = Ends(runs), runs.count() - 1
    for quantile in shares:
        position = quantile * last
        rank = floor(position)
        low = ranked(runs, ends, rank)
        high = _next(runs, low, rank) if position > rank else low
        yield low + (position - rank) * (high - low)


class Ends:
    """First and last values of runs in order, and how many values there are up to each: where a rank can lie."""

    def __init__(self, runs: Runs) -> None:
        self.first, self.begun = _counted(runs.first, runs.steps * runs.weight)
        self.last, self.over = _counted(runs.last(), runs.steps * runs.weight)

    def bounds(self, rank: int) -> tuple[float, float]:
        """The value of `rank` is not below the first, nor above the second."""
        low = self.first[np.searchsorted(self.begun, rank, side="right")]
        return float(low), float(self.last[np.searchsorted(self.over, rank, side="right")])


def _counted(values: Floats, counts: Ints) -> tuple[Floats, Ints]:
    order = np.argsort(values)
    return values[order], np.cumsum(counts[order])


def ranked(runs: Runs, ends: Ends, rank: int) -> float:
    """Return the value that `rank` others come before, to the last bit or the one beside it.

    Bisection; runs wholly on one side are counted once and left."""
    low, high = ends.bounds(rank)
    below, there = runs.last() < low, runs.first <= high
    before, runs = runs.only(below).count(), runs.only(there & ~below)
    if before + runs.values_at_most(low) > rank:
        return low
    while low < (middle := (low + high) / 2) < high:
        if before + runs.values_at_most(middle) > rank:
            high, kept = middle, runs.first <= middle
        else:
            low, kept = middle, runs.last() > middle
            before += runs.only(~kept).count()
        if not kept.all():
            runs = runs.only(kept)
    return high


def _next(runs: Runs, value: float, rank: int) -> float:
    """Return the value one rank after that of `rank`, which is `value`."""
    passed = runs.at_most(value)
    if int(np.sum(passed * runs.weight)) > rank + 1:
        return value
    left = passed < runs.steps
    return float(np.min((runs.first + runs.step * passed)[left], initial=np.inf)) if left.any() else value
