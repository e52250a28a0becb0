"""Tells how many bytes of memory this process may use (`capacity`), and how many of them are still free (`room`);
refuses what takes more (`check_room`).

Three limits, of which the least is taken: what the system has, what the control groups of the process allow (versions 1
and 2, their ancestors included), and its address space (`ulimit -v`). Pages of files that a group holds do not count as
its use, since the kernel gives them up, as MemAvailable reckons too."""

import os
import resource
from dataclasses import dataclass
from pathlib import Path

from helmsman.detection.control_groups import UNLIMITED, ControlGroup, file_text, memory_groups
from helmsman.schemas.errors import HardwareUnavailableError
from helmsman.schemas.units import format_bytes

RESERVE = 64 << 20
"""Bytes of free memory that are left to the interpreter, threads and what is on its way from files to its place."""


@dataclass(frozen=True, slots=True)
class System:
    """Where the system tells of itself; tests have others."""

    proc: Path = Path("/proc")
    groups: Path = Path("/sys/fs/cgroup")


THIS = System()


def capacity(system: System = THIS) -> int:
    """Bytes that this process may use at most, whatever is in use now."""
    return min(_whole(system), *(group.limit for group in limits(system)), _address_space()[0])


def room(system: System = THIS) -> int:
    """Bytes that this process may take beside what is in use; 0 where limits are exceeded."""
    left = (group.limit - group.used for group in limits(system))
    limit, used = _address_space()
    return max(0, min(_available(system), *left, limit - used))


def check_room(size: int, what: str, remedy: str, reserve: int = RESERVE, system: System = THIS) -> None:
    """Raise HardwareUnavailableError where `size` bytes more, which are for `what`, have no room beside `reserve`."""
    left = max(0, room(system) - reserve)
    if size > left:
        message = f"{what} take {format_bytes(size)} of memory, and {format_bytes(left)} are free"
        raise HardwareUnavailableError(message, remedy=remedy)


def limits(system: System = THIS) -> list[ControlGroup]:
    """The control groups of this process that have a limit."""
    return memory_groups(system.proc, system.groups)


def _whole(system: System) -> int:
    return _meminfo(system).get("MemTotal") or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _available(system: System) -> int:
    return _meminfo(system).get("MemAvailable") or _whole(system)


def _meminfo(system: System) -> dict[str, int]:
    """Bytes by name; empty where the system has no such file."""
    lines = (line.split() for line in file_text(system.proc / "meminfo").splitlines())
    return {fields[0].rstrip(":"): 1024 * int(fields[1]) for fields in lines if len(fields) > 1}


def _address_space() -> tuple[int, int]:
    """(limit, use) in bytes."""
    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    if soft == resource.RLIM_INFINITY:
        return UNLIMITED, 0
    pages = file_text(THIS.proc / "self" / "statm").split()
    return soft, int(pages[0]) * os.sysconf("SC_PAGE_SIZE") if pages else 0
