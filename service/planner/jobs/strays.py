"""Files of a store that no job has any more. Only names that the service gives are touched: whatever else somebody
keeps in its folders stays."""

import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from shutil import rmtree

from helmsman.schemas.errors import unwritable
from helmsman.service.planner.jobs.database import JobDatabase

_SETTLED_S = 3600.0
"""Seconds after which a file is no more the result of a job that is just about to be done."""
_RESULT = re.compile(r"\.?[0-9a-f]{64}|\.helm-[0-9a-f]{16}")
"""The name of a result by its digest, of the rows of a study before they are called so, or of a file half written."""
_WORK = re.compile(r"[0-9a-f]{64}|\.helm-[0-9a-f]{16}")
"""The name of a job's folder by its key, or of one that was being removed."""


def remove_strays(results: Path, work: Path, database: JobDatabase) -> None:
    """Remove what a server that was killed has left: to be called while nobody computes. Raises UsageError where the
    folders cannot be read."""
    needed, keys = database.referenced(), set(database.unfinished().values())
    try:
        for path in _named(results, _RESULT, needed):
            if path.is_file():
                with suppress(OSError):
                    path.unlink()
        for path in _named(work, _WORK, keys):
            rmtree(path, ignore_errors=True)
    except OSError as error:
        raise unwritable(error, str(results.parent)) from None


def remove_settled(paths: Iterable[Path]) -> None:
    """Remove results that were written some time ago."""
    for path in paths:
        with suppress(OSError):
            if _settled(path):
                path.unlink()


def remove_settled_work(work: Path, keys: set[str]) -> None:
    """Remove folders that were written some time ago, and are those of none of the `keys` of jobs that go on."""
    with suppress(OSError):
        for path in _named(work, _WORK, keys):
            if _settled(path):
                rmtree(path, ignore_errors=True)


def set_aside(folder: Path) -> Path | None:
    """Give a job's folder a name under which nobody looks for it, so that it can be removed while a new one comes to
    be; returns the place, None where there is no such folder."""
    place = folder.with_name(f".helm-{os.urandom(8).hex()}")
    try:
        folder.rename(place)
    except OSError:
        return None
    return place


def _named(folder: Path, names: re.Pattern[str], needed: set[str]) -> Iterator[Path]:
    """Yield what has a name of the service, and is not needed."""
    for path in folder.iterdir():
        if names.fullmatch(path.name) and path.name not in needed:
            yield path


def _settled(path: Path) -> bool:
    return time.time() - path.stat().st_mtime > _SETTLED_S
