"""Control groups with a limit of memory, where this user may make them."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_HOMES = {Path("/sys/fs/cgroup/memory"): "memory.limit_in_bytes", Path("/sys/fs/cgroup"): "memory.max"}


@contextmanager
def limited_group(limit: int) -> Iterator[Path]:
    """The file to which a process writes its number in order to have `limit` bytes of memory. Skips the test where no
    such group may be made."""
    place = next((place for home, name in _HOMES.items() if (place := _made(home, name, limit)) is not None), None)
    if place is None:
        pytest.skip(
            "this user may make no control group with a limit of memory; limits of address space are tested beside "
            "this, and how limits of groups are read is tested on files made up for it (tests/executor/test_room.py)"
        )
    try:
        yield place / "cgroup.procs"
    finally:
        _remove(place)


def _made(home: Path, name: str, limit: int) -> Path | None:
    place = home / f"helm-test-{os.getpid()}"
    try:
        place.mkdir()
    except OSError:
        return None
    try:
        (place / name).write_text(str(limit))
    except OSError:
        place.rmdir()
        return None
    return place


def _remove(place: Path) -> None:
    """A process leaves its group a moment after it has been waited for."""
    end = time.monotonic() + 300  # only a process that never ends keeps its group for so long
    while time.monotonic() < end:
        try:
            place.rmdir()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise TimeoutError(f"processes are left in {place}")
