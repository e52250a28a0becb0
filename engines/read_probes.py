"""Probes beside runs of other engines: how fast this machine reads its memory before and after each."""

from statistics import median

from helmsman.executor._kernels import Pool
from helmsman.executor.devices.probe import probe_pieces, read_rate
from helmsman.executor.system.machine import Machine
from helmsman.planner.machine import roles
from helmsman.schemas.plan import Plan
from helmsman.schemas.trace import Probe

_TURNS = 3
"""The number of reads of which what is usual is kept."""


def read_probe(plan: Plan, machine: Machine, run: int) -> Probe:
    """Return what all processors read now from memory that is not cached; nothing of it is kept afterwards, so that an
    engine has the memory, and the processors, to itself."""
    pool, pieces = Pool(machine.cpus), probe_pieces(machine.cache_bytes)
    rate = median(read_rate(pool, pieces) for _ in range(_TURNS))
    return Probe(what="read", name=roles(plan.hardware).solo.name, run=run, value=rate)
