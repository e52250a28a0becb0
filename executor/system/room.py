"""Tells how many bytes of memory this process may use (`capacity`), and how many of them are still free (`room`);
refuses what takes more (`check_room`).

Three limits, of which the least is taken: what the system has, what the control groups of the process allow (versions 1
and 2, their ancestors included), and its address space (`ulimit -v`). Pages of files that a group holds do not count as
its use, since the kernel gives them up, as MemAvailable reckons too."""

import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from helmsman.schemas.errors import HardwareUnavailableError
from helmsman.schemas.units import format_bytes

RESERVE = 64 << 20
"""Bytes of free memory that are left to the interpreter, threads and what is on its way from files to its place."""
_UNLIMITED = 2**60
"""Limits of more bytes than this are none: version 1 writes the largest number of pages."""
_FILES = {"memory.max": ("inactive_file", "active_file"),
          "memory.limit_in_bytes": ("total_inactive_file", "total_active_file")}  # fmt: skip
_USE = {"memory.max": "memory.current", "memory.limit_in_bytes": "memory.usage_in_bytes"}


@dataclass(frozen=True, slots=True)
class System:
    """Where the system tells of itself; tests have others."""

    proc: Path = Path("/proc")
    groups: Path = Path("/sys/fs/cgroup")


THIS = System()


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """A control group with a limit: bytes that it may use, and those that it uses."""

    limit: int
    used: int


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
    return [group for folder in _folders(system) if (group := _read(folder)) is not None]


def _whole(system: System) -> int:
    return _meminfo(system).get("MemTotal") or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _available(system: System) -> int:
    return _meminfo(system).get("MemAvailable") or _whole(system)


def _meminfo(system: System) -> dict[str, int]:
    """Bytes by name; empty where the system has no such file."""
    lines = (line.split() for line in _text(system.proc / "meminfo").splitlines())
    return {fields[0].rstrip(":"): 1024 * int(fields[1]) for fields in lines if len(fields) > 1}


def _address_space() -> tuple[int, int]:
    """(limit, use) in bytes."""
    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    if soft == resource.RLIM_INFINITY:
        return _UNLIMITED, 0
    pages = _text(THIS.proc / "self" / "statm").split()
    return soft, int(pages[0]) * os.sysconf("SC_PAGE_SIZE") if pages else 0


def _folders(system: System) -> Iterator[Path]:
    """Of this process's groups of memory: its own and all above it, as far as they can be seen. In a container the path
    that the system tells may be the host's, of which only the end, or nothing, is there."""
    for line in _text(system.proc / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        roots = [system.groups / "memory"] if controllers else [system.groups, system.groups / "unified"]
        for root in roots:
            parts = Path(path.lstrip("/")).parts
            yield from (root.joinpath(*parts[:count]) for count in range(len(parts), -1, -1))


def _read(folder: Path) -> ControlGroup | None:
    for name, use in _USE.items():
        limit = _text(folder / name).strip()
        if limit.isdecimal() and int(limit) < _UNLIMITED:
            stated = dict(line.split(None, 1) for line in _text(folder / "memory.stat").splitlines() if " " in line)
            files = sum(int(stated.get(key, 0)) for key in _FILES[name])
            used = int(_text(folder / use).strip() or 0)
            return ControlGroup(int(limit), max(0, used - files))
    return None


def _text(path: Path) -> str:
    """The content of a file of the system; nothing where there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""
