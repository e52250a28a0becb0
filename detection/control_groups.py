"""Read the limits of Linux control groups, versions 1 and 2: bytes of memory and processors of a process."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

UNLIMITED = 2**60
"""Limits of more bytes than this are none: version 1 writes the largest number of pages."""
_FILES = {"memory.max": ("inactive_file", "active_file"), "memory.high": ("inactive_file", "active_file"),
          "memory.limit_in_bytes": ("total_inactive_file", "total_active_file")}  # fmt: skip
_USE = {
    "memory.max": "memory.current",
    "memory.high": "memory.current",
    "memory.limit_in_bytes": "memory.usage_in_bytes",
}


@dataclass(frozen=True, slots=True)
class ControlGroup:
    """A control group with a limit: bytes that it may use, and those that it uses. Pages of files do not count, since
    the kernel gives them up."""

    limit: int
    used: int


def memory_groups(proc: Path, groups: Path) -> list[ControlGroup]:
    """Return the control groups of this process that limit its memory; `proc`, `groups`: where the system has both."""
    return [group for folder in _folders(proc, groups, "memory") if (group := _read(folder)) is not None]


def processor_quota(proc: Path, groups: Path) -> float | None:
    """Return how many processors' time the control groups of this process allow it, None without a limit."""
    quotas = (_quota(folder) for folder in _folders(proc, groups, "cpu"))
    return min((quota for quota in quotas if quota is not None), default=None)


def file_text(path: Path) -> str:
    """Return the content of a file of the system; nothing where there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return ""


def _folders(proc: Path, groups: Path, controller: str) -> Iterator[Path]:
    """Of this process's groups: its own and all above it, as far as they can be seen. In a container the path that the
    system tells may be the host's, of which only the end, or nothing, is there."""
    for line in file_text(proc / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        roots = [groups / controller] if controllers else [groups, groups / "unified"]
        for root in roots:
            parts = Path(path.lstrip("/")).parts
            yield from (root.joinpath(*parts[:count]) for count in range(len(parts), -1, -1))


def _read(folder: Path) -> ControlGroup | None:
    """Return the smaller limit of a group: beyond `memory.high` its processes hardly get on."""
    return min(_limits(folder), key=lambda group: group.limit, default=None)


def _limits(folder: Path) -> Iterator[ControlGroup]:
    for name, use in _USE.items():
        limit = file_text(folder / name).strip()
        if limit.isdecimal() and int(limit) < UNLIMITED:
            stated = dict(line.split(None, 1) for line in file_text(folder / "memory.stat").splitlines() if " " in line)
            files = sum(int(stated.get(key, 0)) for key in _FILES[name])
            used = int(file_text(folder / use).strip() or 0)
            yield ControlGroup(int(limit), max(0, used - files))


def _quota(folder: Path) -> float | None:
    """Return the processors of `cpu.max` (`200000 100000`), or of the two files of version 1."""
    stated = file_text(folder / "cpu.max").split()
    first = [file_text(folder / f"cpu.cfs_{name}_us").strip() for name in ("quota", "period")]
    quota, period = stated if len(stated) == 2 else first
    if not (quota.isdecimal() and period.isdecimal()) or not int(period):
        return None
    return int(quota) / int(period)
