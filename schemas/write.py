"""Writing files and folders that are complete or not there at all, whatever fails and whenever the process ends.

All comes to be under a name of its own beside its place, is synced, and is renamed last. The name is chosen before
anything has it, so that a signal that comes between cannot leave behind what nobody knows of."""

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from helmsman.schemas.errors import UsageError, unwritable


@contextmanager
def whole_file(path: Path, size: int = 0) -> Iterator[IO[bytes]]:
    """Give a stream whose content `path` has once the block ends well; until then, and otherwise, it is as it was.

    A link stays, and what it leads to is written; a file that was there keeps its mode; a device or a pipe is written
    as it is. `size`: bytes that are known to come. Raises UsageError when the place cannot be written,
    HardwareUnavailableError when the disk is full."""
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as stream:
                yield stream
        else:
            target = Path(os.path.realpath(path))
            with temporary(target) as place:
                with new_file(place, mode_of(target)) as stream:
                    check_free_space(place.parent, size)
                    yield stream
                place.replace(target)
    except OSError as error:
        raise unwritable(error, str(path)) from None


@contextmanager
def whole_folder(path: Path, size: int = 0) -> Iterator[Path]:
    """Give a folder that becomes `path`, which must be empty or not there, once the block ends well, and vanishes
    otherwise; what is in it is to be written with `new_file`.

    `size`: bytes that are known to come. Raises UsageError when `path` is taken or cannot be written,
    HardwareUnavailableError when the disk is full."""
    try:
        target = Path(os.path.realpath(path))
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            remedy = "choose a new or empty directory"
            raise UsageError("already exists and is not an empty directory", file=str(path), remedy=remedy)
        target.parent.mkdir(parents=True, exist_ok=True)
        with temporary(target) as place:
            place.mkdir()
            check_free_space(place, size)
            yield place
            _sync_names(place)
            place.rename(target)
    except OSError as error:
        raise unwritable(error, str(path)) from None


@contextmanager
def new_file(path: Path, mode: int | None = None) -> Iterator[IO[bytes]]:
    """Give a stream into a new file, which is on the disk once the block has ended. `mode`: its exact permissions, and
    nobody else's before; by default those that new files have. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666 if mode is None else 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        yield stream
        stream.flush()
        if mode is not None:
            os.fchmod(descriptor, mode)
        os.fsync(descriptor)


def mode_of(path: Path) -> int | None:
    """Tell the permissions of a file; None where there is none."""
    return stat.S_IMODE(path.stat().st_mode) if path.exists() else None


def check_free_space(folder: Path, size: int) -> None:
    """Raise OSError where `size` bytes do not fit."""
    if shutil.disk_usage(folder).free < size:
        raise OSError(errno.ENOSPC, "no space left on device")


@contextmanager
def temporary(target: Path) -> Iterator[Path]:
    """Give a name beside `target`; what has it when the block ends is removed. What failed first is what is said."""
    place = target.with_name(f".helm-{os.urandom(8).hex()}")
    try:
        yield place
    finally:
        with suppress(OSError):
            if place.is_dir():
                shutil.rmtree(place, ignore_errors=True)
            else:
                place.unlink(missing_ok=True)


def _sync_names(folder: Path) -> None:
    """The names in a folder are on the disk afterwards, as the files are."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
