"""Interleaved comparison of two ways to do something: A B B A ..., medians of pair-wise ratios, and noise."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from helmsman.executor.system.interference import cpu_times, others_share


@dataclass(frozen=True)
class Side:
    """One of the two: `work` units are done by a call, which returns the seconds it took."""

    name: str
    work: float
    seconds: Callable[[], float]


@dataclass(frozen=True)
class Row:
    """`ours` and `other`: median units per second; `ratio`: median of the pair-wise ratios, with its 10th and
    90th percentile; `others_cpu`: share of the machine's CPU time that other processes took meanwhile, None when
    the system does not tell, or too little time passed."""

    what: str
    against: str
    threads: int
    unit: str
    ours: float
    other: float
    ratio: float
    low: float
    high: float
    others_cpu: float | None

    def __str__(self) -> str:
        others = "?" if self.others_cpu is None else f"{self.others_cpu:.0%}"
        return (
            f"{self.what:44s} {self.threads} thr {self.ours:7.1f} {self.unit:8s} | {self.against:13s}"
            f" {self.other:7.1f} | ratio {self.ratio:6.2f} [{self.low:.2f}, {self.high:.2f}]"
            f" | others {others:>4s}"
        )


def compare(ours: Side, other: Side, threads: int, unit: str, pairs: int) -> Row:
    """Alternate both `pairs` times, changing who goes first."""
    before = cpu_times()
    rates = np.array([_pair(ours, other, index % 2 == 0) for index in range(pairs)])
    low, ratio, high = (float(np.percentile(rates[:, 0] / rates[:, 1], p)) for p in (10, 50, 90))
    mine, its = (float(rate) for rate in np.median(rates, axis=0))
    return Row(ours.name, other.name, threads, unit, mine, its, ratio, low, high, others_share(before, cpu_times()))


def _pair(ours: Side, other: Side, ours_first: bool) -> tuple[float, float]:
    if ours_first:
        return ours.work / ours.seconds(), other.work / other.seconds()
    its = other.work / other.seconds()
    return ours.work / ours.seconds(), its
