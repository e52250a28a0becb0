"""The folder in which a service keeps its jobs: held by one server at a time, with all of its parts in it."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from helmsman.schemas.errors import UsageError, unwritable

_PATIENCE_S = 10.0
"""Seconds for which workers of a server that was killed may still live: each ends as soon as it sees that."""
_POLL_S = 0.05
_LOCK = "lock"
_NEUTRAL = "lost+found"
"""A folder that is in every new file system: what is mounted for a store has it."""


@dataclass(frozen=True, slots=True)
class StorePlaces:
    """Where things are in a store."""

    folder: Path

    @property
    def jobs(self) -> Path:
        """Return the database of jobs."""
        return self.folder / "jobs.sqlite"

    @property
    def answers(self) -> Path:
        """Return the database of answers, which may be lost."""
        return self.folder / "answers.sqlite"

    @property
    def results(self) -> Path:
        """Return the folder of results, files called by their digests."""
        return self.folder / "results"

    @property
    def work(self) -> Path:
        """Return the folder of what jobs leave between attempts, by key."""
        return self.folder / "work"


@contextmanager
def held_store(folder: Path, patience_s: float = _PATIENCE_S) -> Iterator[tuple[StorePlaces, int]]:
    """Give the places of a store, and the descriptor that holds it: workers are given it, so that nobody begins a job
    again that a worker of a killed server is still at.

    Raises UsageError where another server has it, it is a folder of something else, or it cannot be written;
    HardwareUnavailableError on a full disk. New folders are for nobody else to read."""
    places = StorePlaces(folder)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_ours(places)
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        for path in (places.results, places.work):
            path.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise unwritable(error, str(folder)) from None
    try:
        _lock(descriptor, folder, time.monotonic() + patience_s)
        yield places, descriptor
    finally:
        os.close(descriptor)


def _check_ours(places: StorePlaces) -> None:
    """Raise UsageError for a folder that has something in it, and has never been a store: nothing of it is ours."""
    if places.jobs.exists() or (places.folder / _LOCK).exists():
        return
    if any(path.name != _NEUTRAL for path in places.folder.iterdir()):
        problem, remedy = "is not empty, and no store of helm-web", "give a new or empty folder as --store"
        raise UsageError(problem, file=str(places.folder), remedy=remedy)


def _lock(descriptor: int, folder: Path, until: float) -> None:
    """Hold the store, as soon as no other process does. Raises UsageError where one still does at `until`."""
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= until:
                remedy = "stop that one, or give another --store"
                raise UsageError("another server has this store", file=str(folder), remedy=remedy) from None
            time.sleep(_POLL_S)
