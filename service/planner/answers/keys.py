"""The digests that questions are known by."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import EntryPoint, PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import helmsman
from helmsman.planner import registry
from helmsman.scheduler import policies
from helmsman.schemas.entry_points import added
from helmsman.service.planner.questions.catalogue import catalogue_digest

_DECIDING = ("highspy", "numpy")
"""Packages whose versions may change an answer: the solver of plans, and random numbers."""
_ADDED = (registry.GROUP, policies.GROUP)
"""Groups of what other packages may add that answers come from."""
_SOURCES = (".py", ".so", ".json")
"""Endings of files that answers come from."""


@dataclass(frozen=True, slots=True)
class Keys:
    """Makes keys: equal ones for questions that say the same, of the same code of Helm, its solver, and what other
    packages add to it, about the same records of models and machines; `state` is the digest of all these.

    A key is the tag of an answer (ETag), and of nothing but an answer: a refusal is kept under its key, but has no tag,
    and what lets the question be answered after all, as a strategy that was installed does, makes its key another."""

    state: str

    @classmethod
    def here(cls) -> "Keys":
        """Return the keys of what is installed here, and its catalogue."""
        code = code_digest(Path(place) for place in helmsman.__path__)
        packages = " ".join(f"{name}={_version(name)}" for name in _DECIDING)
        others = added_digest(point for group in _ADDED for point in added(group).values())
        state = f"{helmsman.__version__} {code} {packages} {others} {catalogue_digest()}"
        return cls(hashlib.sha256(state.encode()).hexdigest())

    def key(self, kind: str, question: bytes) -> str:
        """Return the digest of a question of a kind, best in its canonical form."""
        return hashlib.sha256(f"{self.state} {kind} ".encode() + question).hexdigest()


def code_digest(folders: Iterable[Path]) -> str:
    """Return a digest of the names, sizes and times of the sources in folders of a package, or of a source itself, none
    of which is read: the version stays the same while code changes, and a store outlives both."""
    content = hashlib.sha256()
    for folder in folders:
        for name, path in sorted((str(path.relative_to(folder)), path) for path in _sources(folder)):
            with suppress(FileNotFoundError):  # a link of an editor, which leads nowhere
                status = path.stat()
                content.update(f"{name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return content.hexdigest()


def added_digest(points: Iterable[EntryPoint]) -> str:
    """Return a digest of what other packages add, and of their sources as `code_digest` knows them; nothing of them is
    imported."""
    content = hashlib.sha256()
    for point in sorted(points, key=lambda point: (point.group, point.name)):
        package = "" if point.dist is None else f"{point.dist.name}={point.dist.version}"
        content.update(f"{point.group} {point.name} {point.value} {package} {code_digest(_places(point))}\n".encode())
    return content.hexdigest()


def _places(point: EntryPoint) -> Iterator[Path]:
    """Yield the folders, or the file, of the package that an entry point is in; nothing where there is none."""
    try:
        spec = find_spec(point.module.partition(".")[0])
    except (ImportError, ValueError):
        return
    if spec is not None and spec.submodule_search_locations is not None:
        yield from (Path(place) for place in spec.submodule_search_locations)
    elif spec is not None and spec.has_location and spec.origin is not None:
        yield Path(spec.origin)


def _sources(folder: Path) -> Iterator[Path]:
    if folder.is_file():
        yield folder
    for place, _, names in os.walk(folder, followlinks=True):
        yield from (Path(place) / name for name in names if name.endswith(_SOURCES))


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
