"""Places to write to, checked before long work begins."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from helmsman.schemas.errors import UsageError


def check_place(path: Path | None, remedy: str = "choose another place") -> None:
    """Raise UsageError if a file `path` could not be written now; nothing is left behind.

    Files are written beside their place and renamed, so the folder is what must be writable."""
    if path is None:
        return
    try:
        if path.exists() and not path.is_file():
            _check_special(path)
        else:
            tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise UsageError(f"cannot be written: {error.strerror}", file=str(path), remedy=remedy) from None


def check_places(places: Mapping[str, Path | None]) -> None:
    """`check_place` for every place, by option; raises UsageError also where two files would be one."""
    named: dict[Path, str] = {}
    for option, path in places.items():
        check_place(path)
        if path is None or (path.exists() and not path.is_file()):
            continue
        other = named.setdefault(path.resolve(), option)
        if other != option:
            remedy = "choose two places"
            raise UsageError(f"is written by {other} too", field=option, value=str(path), remedy=remedy)


def make_folder(path: Path, remedy: str) -> None:
    """Make a folder and those above it. Raises UsageError naming the path."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot be made: {error.strerror}", file=str(path), remedy=remedy) from None


def _check_special(path: Path) -> None:
    """A device or a pipe is not opened: opening a pipe waits for its reader."""
    if path.is_dir():
        raise IsADirectoryError(0, "it is a directory")
    if not os.access(path, os.W_OK):
        raise PermissionError(0, "permission denied")
