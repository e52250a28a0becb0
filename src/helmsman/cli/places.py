"""Places to write to, checked before long work begins."""

import argparse
import os
import tempfile
from pathlib import Path

from helmsman.schemas.errors import UsageError, unwritable


def check_place(path: Path | None, remedy: str = "choose another place") -> None:
    """Raise UsageError if a file `path` could not be written now, HardwareUnavailableError if the disk is full; nothing
    is left behind.

    Files are written beside their place and renamed, so the folder is what must be writable: that of the file to which
    a link leads."""
    if path is None:
        return
    try:
        if path.exists() and not path.is_file():
            _check_special(path)
        else:
            tempfile.TemporaryFile(dir=Path(os.path.realpath(path)).parent).close()
    except OSError as error:
        raise unwritable(error, str(path), remedy) from None


def check_outputs(args: argparse.Namespace) -> None:
    """`check_place` for every file that arguments say to write (`OUTPUTS`).

    Raises UsageError also where two of them would be one, or one is also read."""
    given = vars(args)
    named: dict[Path, str] = {}
    for name in OUTPUTS:
        path = given.get(name)
        check_place(path)
        if path is None or (path.exists() and not path.is_file()):
            continue
        option = _option(name)
        other = named.setdefault(Path(os.path.realpath(path)), option)
        if other != option:
            remedy = "choose two places"
            raise UsageError(f"is written by {other} too", field=option, value=str(path), remedy=remedy)
        others = ((other_option, value) for other_option, value in given.items() if other_option not in OUTPUTS)
        reader = next((other for other, value in others if _is_file(value, path, other in _FOLDERS)), None)
        if reader is not None:
            message = f"is read as {_option(reader)} too"
            raise UsageError(message, field=option, value=str(path), remedy="choose another place")


OUTPUTS = (
    "out", "plot", "rows", "html", "junit", "markdown", "write_table", "trace", "timeline", "export_vllm",
    "export_aiperf",
)  # fmt: skip
"""Arguments, of all commands, that name a file to write."""


def _is_file(value: object, path: Path, whole: bool) -> bool:
    """Whether an argument's value, or one of its values, names the existing file `path`; or its folder, where all of
    that is read (`whole`)."""
    if isinstance(value, list | tuple):
        return any(_is_file(entry, path, whole) for entry in value)
    if isinstance(value, str) and Path(value).suffix.lower() not in _READ and os.sep not in value:
        return False  # a name of the catalogue, of the database, or a text
    if not isinstance(value, str | Path) or not path.exists():
        return False
    try:
        return path.samefile(value) or (whole and Path(os.path.realpath(path)).parent.samefile(value))
    except (OSError, ValueError):
        return False


_FOLDERS = ("checkpoint", "model")
"""Arguments that may name a folder of which everything is read."""

_READ = (".json", ".jsonl", ".csv", ".parquet", ".gguf")
"""Endings of files that arguments may name beside what are no files."""


def _option(name: str) -> str:
    return "-o" if name == "out" else "PLAN" if name == "plan" else f"--{name.replace('_', '-')}"


def make_folder(path: Path, remedy: str) -> None:
    """Make a folder and those above it. Raises UsageError, or HardwareUnavailableError on a full disk, naming it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(error, str(path), remedy) from None


def _check_special(path: Path) -> None:
    """A device or a pipe is not opened: opening a pipe waits for its reader."""
    if path.is_dir():
        raise IsADirectoryError(0, "it is a directory")
    if not os.access(path, os.W_OK):
        raise PermissionError(0, "permission denied")
