"""How much of the processors other processes took: a measurement beside which others ran means little.

Two sources are combined. `/proc/stat` counts what all processes used, in clock ticks of about 10 ms: it sees others on
processors that are not ours, whose memory traffic is felt all the same. `/proc/self/task/*/schedstat` counts, in
nanoseconds, how long each of our threads was ready and waited for a processor."""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

_STAT = Path("/proc/stat")
_TASKS = Path("/proc/self/task")
_IDLE = (3, 4)
_RESOLVED = 1.0
"""Processor seconds after which a tick of 10 ms is 1 %."""
_TICK = 0.01
"""Seconds that two readings of /proc/stat do not resolve."""
_NANOSECOND = 1e-9


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Seconds since boot or start, all processors together; `own`: of this process and its children that have ended."""

    busy: float
    total: float
    own: float


@dataclass(frozen=True, slots=True)
class Moment:
    """The system's counters at `seconds` of the monotonic clock; `waits`: by thread of this process, seconds since its
    start that it was ready and had no processor."""

    seconds: float
    times: CpuTimes | None = None
    waits: Mapping[str, float] = field(default_factory=dict)


def cpu_times() -> CpuTimes | None:
    """Times now; None where the system does not tell."""
    if not _STAT.exists():
        return None
    ticks = [int(value) for value in _STAT.read_text().split("\n", 1)[0].split()[1:9]]
    second = os.sysconf("SC_CLK_TCK")
    idle = sum(ticks[place] for place in _IDLE)
    children = os.times()
    own = time.process_time() + children.children_user + children.children_system
    return CpuTimes((sum(ticks) - idle) / second, sum(ticks) / second, own)


def moment() -> Moment:
    """The moment it is called; takes about 0.1 ms."""
    return Moment(time.monotonic(), cpu_times(), _thread_waits())


def others_share(before: CpuTimes | None, after: CpuTimes | None) -> float | None:
    """Share of all processor time between two moments that other processes used, 0 to 1.

    None where the system does not tell, and when too little time passed for its clock ticks."""
    if before is None or after is None or after.total - before.total < _RESOLVED:
        return None
    return min(1.0, max(0.0, _others(before, after) / (after.total - before.total)))


def disturbance(before: Moment, after: Moment) -> float:
    """Share of the time between two moments that others took from a measurement of this process, 0 to 1.

    The larger of two: the others' share of all processor time; and the longest wait of one of our threads, which holds
    up the rest at the next join, over the time. A thread waits only while another runs: what exceeds the others'
    processor time was a wait for another thread of our own, and does not count. From short times a clock tick is
    subtracted, for it may belong to what was before. 0 where the system does not tell."""
    seconds = after.seconds - before.seconds
    if before.times is None or after.times is None or seconds <= 0.0:
        return 0.0
    others = max(0.0, _others(before.times, after.times) - _TICK)
    total = max(after.times.total - before.times.total, seconds)
    waited = max((wait - before.waits.get(thread, 0.0) for thread, wait in after.waits.items()), default=0.0)
    return min(1.0, max(others / total, min(waited, others) / seconds))


def _others(before: CpuTimes, after: CpuTimes) -> float:
    """Processor seconds of other processes."""
    return (after.busy - before.busy) - (after.own - before.own)


def _thread_waits() -> dict[str, float]:
    """Second field of every thread's schedstat; nothing where the system does not keep it."""
    waits: dict[str, float] = {}
    for task in _TASKS.iterdir() if _TASKS.exists() else ():
        try:
            waits[task.name] = _NANOSECOND * int((task / "schedstat").read_text().split()[1])
        except (OSError, IndexError):  # the thread has just ended, or the system keeps no such file
            continue
    return waits
