"""Facts of the machine that a profile is about."""

import platform
from pathlib import Path

from helmsman.executor._kernels import isa
from helmsman.executor.machine import Machine
from helmsman.schemas.hardware import Host

_PROCESSORS = Path("/proc/cpuinfo")


def host_facts(machine: Machine) -> Host:
    """Its processor, instruction set, memory, last-level cache and operating system."""
    return Host(
        cpu=_cpu_name(),
        cores=len(machine.cpus),
        isa=(isa(),),
        ram=machine.total_memory,
        cache_bytes=machine.cache_bytes,
        os=f"{platform.system()} {platform.release()}",
    )


def _cpu_name() -> str:
    lines = _PROCESSORS.read_text().splitlines() if _PROCESSORS.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
