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


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file of the page: when it was written, its content, compressed too, and its digest."""

    written: int
    content: bytes
    compressed: bytes
    digest: str


class PageFiles:
    """The files of the page, each read again when it has changed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[str, PageFile] = {}

    def get(self, name: str) -> PageFile:
        """Return a file by its name. Raises RefusedError (404) for one that there is not."""
        path = self._folder / name
        try:
            if not _NAME.fullmatch(name) or path.suffix not in KINDS or not path.is_file():
                raise RefusedError(404, "not_found", "there is no such file")
            written = path.stat().st_mtime_ns
            if name not in self._read or self._read[name].written != written:
                content = path.read_bytes()
                compressed = gzip.compress(content, mtime=0) if path.suffix in _SHRUNK else b""
                self._read[name] = PageFile(written, content, compressed, hashlib.sha256(content).hexdigest())
        except OSError:
            raise RefusedError(404, "not_found", "there is no such file") from None
        return self._read[name]


def page_folder() -> Path:
    """Return the folder of the page's files."""
    return Path(str(files("helmsman.service.planner") / "page"))
