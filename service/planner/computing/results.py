"""Results as files that are called by the digests of what is in them."""

import hashlib
from pathlib import Path

from helmsman.schemas.write import whole_file


def store_result(folder: Path, content: bytes) -> str:
    """Write a result into a file that is called by its digest, whole or not at all, and return the digest. Raises
    HardwareUnavailableError on a full disk, UsageError where it cannot be written."""
    digest = hashlib.sha256(content).hexdigest()
    with whole_file(folder / digest, len(content)) as stream:
        stream.write(content)
    return digest


def rename_result(place: Path) -> str:
    """Call a file by the digest of what is in it, and return that."""
    with place.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    place.replace(place.with_name(digest))
    return digest
