"""The history of a case: a folder to which files are only ever added, and a manifest with the digest of each.

A file is written whole before the manifest lists it, and the manifest is replaced whole; so what ends in between leaves
a file that the manifest does not know, which is told and not used, and no entry is lost or half there."""

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from helmsman.schemas.errors import BadInputError, unwritable
from helmsman.schemas.gate_history import (
    GateEntry,
    HistoryFile,
    HistoryManifest,
    MeasuredEntry,
    read_entry,
    write_entry,
)
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.read import read_bytes, read_document
from helmsman.schemas.write import new_file, temporary, whole_file

MANIFEST = "manifest.json"
_FILE_LIMIT = 256 * 2**20
_ENTRY, _RECORD = ".parquet", ".json"


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """An entry with the name of its file, and whether it was accepted as a baseline."""

    name: str
    accepted: bool
    entry: MeasuredEntry

    @property
    def info(self) -> GateEntry:
        """Return the time, version, machine and plan that the entry's runs belong to."""
        return self.entry.info


@dataclass(frozen=True, slots=True)
class History:
    """The content of a history. `entries`: the oldest first; `accepted`: names of baselines, the newest last;
    `unlisted`: files that the manifest does not know."""

    folder: Path
    entries: tuple[HistoryEntry, ...] = ()
    accepted: tuple[str, ...] = ()
    unlisted: tuple[str, ...] = ()

    def baseline(self, machine: str) -> HistoryEntry | None:
        """Return the entry that was accepted last of those measured on `machine`; None without one."""
        by_name = {entry.name: entry for entry in self.entries if entry.info.machine == machine}
        return next((by_name[name] for name in reversed(self.accepted) if name in by_name), None)

    def newest(self, machine: str) -> HistoryEntry | None:
        """Return the newest entry measured on `machine`; None without one."""
        return next((entry for entry in reversed(self.entries) if entry.info.machine == machine), None)


def read_history(folder: Path) -> History:
    """Read and verify all of a history; one that is not there is empty.

    Raises BadInputError for a file that is missing, is not what the manifest says, or holds what cannot be."""
    manifest = _manifest(folder)
    for file in manifest.files:
        _check(folder / file.name, file.sha256)
    names = [file.name for file in manifest.files if file.name.endswith(_ENTRY)]
    entries = (HistoryEntry(name, name in manifest.accepted, read_entry(folder / name)) for name in names)
    return History(folder, tuple(entries), manifest.accepted, tuple(_unlisted(folder, manifest)))


def read_record(folder: Path, sha256: str) -> Hardware | None:
    """Return the machine's record of that digest which the history keeps; None where it does not."""
    name = _record_name(sha256)
    listed = any(file.name == name for file in _manifest(folder).files)
    return read_document(Hardware, folder / name) if listed else None


def append(folder: Path, entry: MeasuredEntry, record: Hardware) -> str:
    """Add an entry, and the record that priced it unless it is there; return the entry's name.

    Raises UsageError where the folder cannot be written, HardwareUnavailableError on a full disk: the history is then
    as it was."""
    with _changing(folder) as manifest:
        files = list(manifest.files)
        record_name = _record_name(entry.info.hardware_sha256)
        if all(file.name != record_name for file in files):
            with whole_file(folder / record_name) as stream:
                stream.write(record.to_json().encode())
            files.append(_listed(folder / record_name))
        name = _entry_name(entry, len(files))
        with whole_file(folder / name) as stream:
            write_entry(entry, stream)
        files.append(_listed(folder / name))
        _replace(folder, manifest.model_copy(update={"files": tuple(files)}))
    return name


def accept_entry(folder: Path, name: str) -> None:
    """Make an entry the baseline from now on. Raises what `append` raises."""
    with _changing(folder) as manifest:
        _replace(folder, manifest.model_copy(update={"accepted": (*manifest.accepted, name)}))


def check_writable(folder: Path) -> None:
    """Make the folder of a history and try to write there, so that nothing is measured that cannot be kept. Raises what
    `append` raises."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with temporary(folder / MANIFEST) as place, new_file(place):
            pass
    except OSError as error:
        raise unwritable(error, str(folder)) from None


@contextmanager
def _changing(folder: Path) -> Iterator[HistoryManifest]:
    """Give the manifest while no other process changes it."""
    import fcntl

    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise unwritable(error, str(folder)) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield _manifest(folder)
    finally:
        os.close(descriptor)


def _manifest(folder: Path) -> HistoryManifest:
    path = folder / MANIFEST
    return read_document(HistoryManifest, path) if path.exists() else HistoryManifest()


def _replace(folder: Path, manifest: HistoryManifest) -> None:
    with whole_file(folder / MANIFEST) as stream:
        stream.write(manifest.to_json().encode() + b"\n")


def _listed(path: Path) -> HistoryFile:
    return HistoryFile(name=path.name, sha256=_sha256(path))


def _check(path: Path, sha256: str) -> None:
    actual = _sha256(path)
    if actual != sha256:
        message, remedy = (
            f"corrupt: the manifest says its SHA-256 is {sha256}",
            "restore the file, from Git for example",
        )
        raise BadInputError(message, file=str(path), value=actual, remedy=remedy)


def _sha256(path: Path) -> str:
    return hashlib.sha256(read_bytes(path, _FILE_LIMIT)).hexdigest()


def _unlisted(folder: Path, manifest: HistoryManifest) -> Iterator[str]:
    known = {MANIFEST, *(file.name for file in manifest.files)}
    paths = sorted(folder.iterdir()) if folder.is_dir() else []
    yield from (path.name for path in paths if path.name not in known and not path.name.startswith("."))


def _entry_name(entry: MeasuredEntry, place: int) -> str:
    """Return a name that sorts by time, and that no other entry of the history has."""
    when = "".join(letter for letter in entry.info.measured if letter.isalnum())
    return f"{when}-{place:05d}{_ENTRY}"


def _record_name(sha256: str) -> str:
    return f"record-{sha256[:32]}{_RECORD}"
