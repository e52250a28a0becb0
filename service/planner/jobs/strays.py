"""Files of a store that no job has any more."""

import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from shutil import rmtree

from helmsman.service.planner.jobs.database import JobDatabase

_SETTLED_S = 3600.0
"""Seconds after which a file is no more the result of a job that is just about to be done."""


def remove_strays(results: Path, work: Path, database: JobDatabase) -> None:
    """Remove what a server that was killed has left: to be called while nobody computes."""
    needed, keys = database.referenced(), set(database.unfinished().values())
    for path in results.iterdir():
        if path.name not in needed:
            path.unlink(missing_ok=True)
    for folder in work.iterdir():
        if folder.name not in keys:
            rmtree(folder, ignore_errors=True)


def remove_settled(paths: Iterable[Path]) -> None:
    """Remove results that were written some time ago."""
    for path in paths:
        with suppress(OSError):
            if time.time() - path.stat().st_mtime > _SETTLED_S:
                path.unlink()
