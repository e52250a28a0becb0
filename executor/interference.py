"""How much of the processors other processes took: a measurement beside which others ran means little."""

import os
from dataclasses import dataclass
from pathlib import Path

_STAT = Path("/proc/stat")
_IDLE = (3, 4)
_RESOLVED = 1.0
"""Processor seconds after which a tick of 10 ms is 1 %."""


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """Seconds since boot or start, all processors together."""

    busy: float
    total: float
    own: float


def cpu_times() -> CpuTimes | None:
    """Times now; None where the system does not tell."""
    if not _STAT.exists():
        return None
    ticks = [int(field) for field in _STAT.read_text().split("\n", 1)[0].split()[1:9]]
    second = os.sysconf("SC_CLK_TCK")
    idle = sum(ticks[place] for place in _IDLE)
    own = os.times()
    return CpuTimes((sum(ticks) - idle) / second, sum(ticks) / second, own.user + own.system)


def others_share(before: CpuTimes | None, after: CpuTimes | None) -> float | None:
    """Share of all processor time between two moments that other processes used, 0 to 1.

    None where the system does not tell, and when too little time passed for its clock ticks."""
    if before is None or after is None or after.total - before.total < _RESOLVED:
        return None
    others = (after.busy - before.busy) - (after.own - before.own)
    return min(1.0, max(0.0, others / (after.total - before.total)))
