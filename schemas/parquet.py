"""Tables as Parquet files in which no change goes unnoticed: page checksums, and a digest of all content in the
metadata, because page checksums cover neither page headers nor the footer."""

import hashlib
import resource
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from helmsman.schemas.errors import BadInputError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of file: `key` of the document about it in the metadata, what errors call it, and what to use or do."""

    key: bytes
    name: str
    written_by: str
    again: str

    @property
    def digest_key(self) -> bytes:
        """Return the key of the digest in the metadata."""
        return self.key + b".sha256"


@dataclass(frozen=True, slots=True)
class StoredTable:
    """The content of a file, not yet verified."""

    table: "pa.Table"
    metadata: dict[bytes, bytes]


def digest(info: bytes, parts: Iterable[bytes]) -> bytes:
    """SHA-256 of the document and of every value."""
    state = hashlib.sha256(info)
    for part in parts:
        state.update(part)
    return state.hexdigest().encode()


def write_table(kind: Kind, table: "pa.Table", info: bytes, parts: Iterable[bytes], stream: IO[bytes]) -> None:
    """Write `table`, whose values are `parts`, and the document `info` to an open binary stream."""
    import pyarrow.parquet as pq

    metadata = {kind.key: info, kind.digest_key: digest(info, parts)}
    marked = table.replace_schema_metadata(metadata)
    pq.write_table(marked, stream, write_page_checksum=True, compression="zstd")


@contextmanager
def reading(kind: Kind, path: Path) -> Iterator[None]:
    """Whatever a corrupt file makes Arrow say becomes BadInputError."""
    import pyarrow as pa

    try:
        there = path.is_file()
    except OSError as error:  # a name that no file system takes
        raise BadInputError(f"cannot be read: {error.strerror}", file=str(path), remedy="check the path") from None
    if not there:
        raise BadInputError("cannot be read: no such file", file=str(path), remedy="check the path")
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise BadInputError(f"cannot be read as Parquet: {first}", file=str(path), remedy=kind.again) from None


def read_table(kind: Kind, path: Path, schema: "pa.Schema", most: int, texts: Sequence[str] = ()) -> StoredTable:
    """Return a file of this kind with at most `most` rows; columns `texts` stay dictionaries. Use within `reading`.

    A file of equal values is small and may stand for any number of them: `_within` bounds what they take."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        metadata = file.schema_arrow.metadata or {}
        if kind.key not in metadata or not file.schema_arrow.equals(schema):
            raise BadInputError(f"not a {kind.name}", file=str(path), remedy=kind.written_by)
        if file.metadata.num_rows > most:
            raise BadInputError(f"more than {most} rows", file=str(path))
    with _within(path), pq.ParquetFile(path, page_checksum_verification=True, read_dictionary=list(texts)) as file:
        table = file.read(use_threads=False)
    table.validate(full=True)
    return StoredTable(table, dict(metadata))


@contextmanager
def _within(path: Path) -> Iterator[None]:
    """Meanwhile this process may take no more memory than the values of a table of the file's size do: a limit of the
    system holds whatever the file says of itself, and its footer may say anything. Raises BadInputError beyond it."""
    size = path.stat().st_size
    room = _FREE_BYTES + _MOST_TIMES * size
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limit = int(_STATM.read_text().split()[0]) * resource.getpagesize() + room if _STATM.exists() else soft
    if soft != resource.RLIM_INFINITY:
        limit = min(limit, soft)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    except MemoryError:
        message = f"its values take more than {room} bytes, as those of no table of {size} bytes do"
        raise BadInputError(message, file=str(path), remedy="write the table again") from None
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


_FREE_BYTES = 2**28
_MOST_TIMES = 200
_STATM = Path("/proc/self/statm")


def verified(kind: Kind, stored: StoredTable, parts: Iterable[bytes], path: Path) -> bytes:
    """Return the document of a file whose values are `parts`. Raises BadInputError where they are not what was
    written."""
    info = stored.metadata.get(kind.key, b"")
    if digest(info, parts) != stored.metadata.get(kind.digest_key):
        raise BadInputError("corrupt: its digest differs", file=str(path), remedy=kind.again)
    return info
