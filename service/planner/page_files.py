"""The files of the web page, from the package."""

import gzip
import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from helmsman.service.http.refusals import RefusedError

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*")
"""Names of files: none of them leads out of the folder, or to what is hidden."""
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".webmanifest": "application/manifest+json",
    ".txt": "text/plain; charset=utf-8",
}
_SHRUNK = (".html", ".js", ".css", ".json", ".svg", ".txt", ".webmanifest")
"""Endings of files that are sent compressed where the browser takes that."""


_IMPORT = re.compile(rb'^@import "([a-z]+\.css)";$', re.MULTILINE)
"""A line of a style sheet that stands for another one beside it."""


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file of the page, with the sheets that it imports in their places: the times at which the `parts` were written,
    its content, compressed too, and its digest."""

    parts: dict[Path, int]
    content: bytes
    compressed: bytes
    digest: str


class PageFiles:
    """The files of the page, each read again when it has changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[str, PageFile] = {}

    def prepare(self) -> None:
        """Read and compress the page and the files that it names, so that no visitor waits for it."""
        page = self.get("index.html").content.decode()
        for name in re.findall(r'"assets/([^"]+)"', page):
            self.get(name)

    def get(self, name: str) -> PageFile:
        """Return a file by its name. Raises RefusedError (404) for one that there is not."""
        path = self._folder / name
        try:
            if not _NAME.fullmatch(name) or path.suffix not in KINDS or not path.is_file():
                raise RefusedError(404, "not_found", "there is no such file")
            known = self._read.get(name)
            if known is None or known.parts != {part: part.stat().st_mtime_ns for part in known.parts}:
                self._read[name] = _read(path)
        except OSError:
            raise RefusedError(404, "not_found", "there is no such file") from None
        return self._read[name]


def _read(path: Path) -> PageFile:
    """Return a file. Raises OSError."""
    parts = {path: path.stat().st_mtime_ns}

    def imported(line: re.Match[bytes]) -> bytes:
        part = path.with_name(line[1].decode())
        parts[part] = part.stat().st_mtime_ns
        return part.read_bytes()

    content = path.read_bytes()
    if path.suffix == ".css":
        content = _IMPORT.sub(imported, content)
    compressed = gzip.compress(content, mtime=0) if path.suffix in _SHRUNK else b""
    return PageFile(parts, content, compressed, hashlib.sha256(content).hexdigest())


def page_folder() -> Path:
    """Return the folder of the page's files."""
    return Path(str(files("helmsman.service.planner") / "page"))
