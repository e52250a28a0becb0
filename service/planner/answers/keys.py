"""The digests that questions are known by."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import helmsman
from helmsman.service.planner.questions.catalogue import catalogue_digest

_DECIDING = ("highspy", "numpy")
"""Packages whose versions may change an answer: the solver of plans, and random numbers."""
_SOURCES = (".py", ".so", ".json")
"""Endings of files that answers come from."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Makes keys: equal ones for questions that say the same, of the same code of Helm and its solver, about the same
    records of models and machines; `state` is the digest of all these."""

    state: str

    @classmethod
    def here(cls) -> "Keys":
        """Return the keys of what is installed here, and its catalogue."""
        code = code_digest(Path(place) for place in helmsman.__path__)
        packages = " ".join(f"{name}={_version(name)}" for name in _DECIDING)
        state = f"{helmsman.__version__} {code} {packages} {catalogue_digest()}"
        return cls(hashlib.sha256(state.encode()).hexdigest())

    def key(self, kind: str, question: bytes) -> str:
        """Return the digest of a question of a kind, best in its canonical form."""
        return hashlib.sha256(f"{self.state} {kind} ".encode() + question).hexdigest()


def code_digest(folders: Iterable[Path]) -> str:
    """Return a digest of the names, sizes and times of the sources in folders of a package, none of which is read: the
    version stays the same while code changes, and a store outlives both."""
    content = hashlib.sha256()
    for folder in folders:
        for name, path in sorted((str(path.relative_to(folder)), path) for path in _sources(folder)):
            with suppress(FileNotFoundError):  # a link of an editor, which leads nowhere
                status = path.stat()
                content.update(f"{name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return content.hexdigest()


def _sources(folder: Path) -> Iterator[Path]:
    for place, _, names in os.walk(folder, followlinks=True):
        yield from (Path(place) / name for name in names if name.endswith(_SOURCES))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
