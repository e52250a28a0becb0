"""Facts of the machine that a profile, a run or a benchmark is about."""

import platform
from collections.abc import Sequence
from pathlib import Path

from helmsman.executor._kernels import Buffer, Pool, isa, supported_isas
from helmsman.executor.devices.probe import probe_pieces, read_rate
from helmsman.executor.system.machine import Machine
from helmsman.hwdb.machine_line import MachineFacts
from helmsman.schemas.hardware import Host

_PROCESSORS = Path("/proc/cpuinfo")
_PORTABLE = "portable"


def host_facts(machine: Machine) -> Host:
    """Its processor, instruction sets, memory, last-level cache and operating system."""
    return Host(
        cpu=_cpu_name(),
        cores=len(machine.cpus),
        isa=_instruction_sets(),
        ram=machine.total_memory,
        cache_bytes=machine.cache_bytes,
        os=f"{platform.system()} {platform.release()}",
    )


def facts_here(machine: Machine, pieces: Sequence[Buffer] | None = None) -> MachineFacts:
    """The machine at hand, and how fast it reads right now with one thread and with one on every CPU.

    `pieces`: buffers to read, together large against the cache (default: as a probe has them)."""
    pieces = probe_pieces(machine.cache_bytes) if pieces is None else pieces
    reads = {count: read_rate(Pool(machine.cpus[:count]), pieces) for count in sorted({1, len(machine.cpus)})}
    return MachineFacts(_cpu_name(), len(machine.cpus), _instruction_sets(), reads)


def _instruction_sets() -> tuple[str, ...]:
    """The one in use, then the others that there are; portable code, which is everywhere, only where it is in use."""
    others = [name for name in supported_isas() if name != _PORTABLE]
    return tuple(dict.fromkeys((isa(), *others)))


def _cpu_name() -> str:
    lines = _PROCESSORS.read_text().splitlines() if _PROCESSORS.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
