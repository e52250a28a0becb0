"""Gives access to files, programs and environment of a system; tests give others."""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path
from textwrap import shorten
from types import ModuleType

from helmsman.schemas.errors import UsageError

_MOST_LINE = 120
"""Letters of a program's line that are told."""
_MOST_TEXT = 4 << 20
"""Bytes of a program's output, or of a system's file, that are read."""


@dataclass(frozen=True, slots=True)
class ProgramOutput:
    """Holds the output of a program, and the code with which it ended; None: it did not end in time."""

    code: int | None
    text: str

    @property
    def first_line(self) -> str:
        """The first line with something in it, without its last words where it is long."""
        lines = (line.strip() for line in self.text.splitlines())
        plain = "".join(letter for letter in next(filter(None, lines), "nothing") if letter.isprintable())
        return shorten(plain, _MOST_LINE, placeholder=" ...") if " " in plain else plain[:_MOST_LINE]


def _environment() -> dict[str, str]:
    return dict(os.environ)


def _package(name: str) -> str | None:
    """Return the version of an installed package, None where there is none."""
    try:
        return installed_version(name)
    except PackageNotFoundError:
        return None


@dataclass(frozen=True, slots=True)
class ObservedSystem:
    """A system to look at. `root`: of its files; `affinity`: processors that this process may use, None for all;
    `package`: the version of a Python package by its name; `module`: imports one; `patience_s`: for a program;
    `python`: an interpreter."""

    root: Path = Path("/")
    environment: Mapping[str, str] = field(default_factory=_environment)
    name: str = field(default_factory=platform.system)
    affinity: frozenset[int] | None = None
    package: Callable[[str], str | None] = _package
    module: Callable[[str], ModuleType] = import_module
    patience_s: float = 10.0
    python: str = sys.executable

    @classmethod
    def here(cls) -> "ObservedSystem":
        """The system of this process."""
        usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
        return cls(affinity=None if usable is None else frozenset(usable))

    @property
    def home(self) -> Path:
        """The user's folder. Raises UsageError for a user without one."""
        home = self.environment.get("HOME") or self.environment.get("USERPROFILE")
        if home:
            return Path(home)
        raise UsageError("there is no home folder", remedy="set HOME")

    def at(self, path: str) -> Path:
        """Return a path of the system below its root."""
        return self.root / path.lstrip("/")

    def text(self, path: str | Path) -> str:
        """Return a file's text; nothing where there is none, or none that may be read."""
        data = self.content(path)
        return data.decode("utf-8", "replace").replace("\x00", " ")

    def content(self, path: str | Path) -> bytes:
        """Return a file's bytes; none where there is none, or none that may be read."""
        place = path if isinstance(path, Path) else self.at(path)
        try:
            with place.open("rb") as stream:
                return stream.read(_MOST_TEXT)
        except OSError:
            return b""

    def program(self, name: str) -> str | None:
        """Return where a program is on the path, None where it is not."""
        return shutil.which(name, path=self.environment.get("PATH", ""))

    def output(self, *command: str) -> ProgramOutput | None:
        """Return what a program prints, None where there is none."""
        place = self.program(command[0])
        if place is None:
            return None
        try:
            ended = subprocess.run(
                [place, *command[1:]],
                capture_output=True,
                timeout=self.patience_s,
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return ProgramOutput(None, "")
        except OSError as error:
            return ProgramOutput(127, str(error.strerror))
        printed = ended.stdout[:_MOST_TEXT] or ended.stderr[:_MOST_TEXT]
        return ProgramOutput(ended.returncode, printed.decode("utf-8", "replace"))
