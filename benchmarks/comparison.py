"""Interleaved comparison of two ways to do something: A B B A ..., medians of pair-wise ratios, and noise."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Side:
    """One of the two: `work` units are done by a call, which returns the seconds it took."""

    name: str
    work: float
    seconds: Callable[[], float]


@dataclass(frozen=True)
class Row:
    """`ours` and `other`: median units per second; `ratio`: median of the pair-wise ratios, with its 10th and
    90th percentile; `others_cpu`: share of the machine's CPU time that other processes took meanwhile."""

    what: str
    against: str
    threads: int
    unit: str
    ours: float
    other: float
    ratio: float
    low: float
    high: float
    others_cpu: float

    def __str__(self) -> str:
        return (
            f"{self.what:44s} {self.threads} thr {self.ours:7.1f} {self.unit:8s} | {self.against:13s}"
            f" {self.other:7.1f} | ratio {self.ratio:6.2f} [{self.low:.2f}, {self.high:.2f}]"
            f" | others {self.others_cpu:4.0%}"
        )


def compare(ours: Side, other: Side, threads: int, unit: str, pairs: int) -> Row:
    """Alternate both `pairs` times, changing who goes first."""
    load = _Load()
    rates = np.array([_pair(ours, other, index % 2 == 0) for index in range(pairs)])
    low, ratio, high = (float(np.percentile(rates[:, 0] / rates[:, 1], p)) for p in (10, 50, 90))
    mine, its = (float(rate) for rate in np.median(rates, axis=0))
    return Row(ours.name, other.name, threads, unit, mine, its, ratio, low, high, load.of_others())


def _pair(ours: Side, other: Side, ours_first: bool) -> tuple[float, float]:
    if ours_first:
        return ours.work / ours.seconds(), other.work / other.seconds()
    its = other.work / other.seconds()
    return ours.work / ours.seconds(), its


class _Load:
    """CPU time since it was made, of this process and of all."""

    def __init__(self) -> None:
        self._begun = time.perf_counter(), time.process_time(), _machine_seconds()

    def of_others(self) -> float:
        wall, own, total = self._begun
        busy = _machine_seconds() - total - (time.process_time() - own)
        return max(0.0, busy) / ((time.perf_counter() - wall) * (os.cpu_count() or 1))


def _machine_seconds() -> float:
    """CPU seconds that all processes have used (proc(5): /proc/stat)."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8]
    user, nice, system, _idle, _iowait, irq, softirq = map(int, fields)
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")
