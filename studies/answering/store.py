"""Answers that are kept: a folder of shards, each a table that is written whole, under the digest of its keys."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

from helmsman.schemas.errors import unwritable
from helmsman.schemas.study_row import StudyRow
from helmsman.schemas.study_table import read_rows, write_rows
from helmsman.schemas.write import whole_file


@dataclass(frozen=True, slots=True)
class Store:
    """The shards in a folder. A row is an answer to the question whose digest is its key, whichever study asked."""

    folder: Path

    def rows(self) -> dict[str, StudyRow]:
        """Return all rows by key. Raises BadInputError for a damaged shard."""
        paths = sorted(self.folder.glob("*.parquet")) if self.folder.is_dir() else []
        return {row.key: row for path in paths for row in read_rows(path)}

    def check(self) -> None:
        """Raise UsageError where shards cannot be written, HardwareUnavailableError on a full disk."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            TemporaryFile(dir=self.folder).close()
        except OSError as error:
            raise unwritable(error, str(self.folder)) from None

    def add(self, rows: Sequence[StudyRow]) -> None:
        """Write a shard, complete or not at all. Raises UsageError where that cannot be written, and
        HardwareUnavailableError on a full disk."""
        if not rows:
            return
        name = hashlib.sha256("".join(row.key for row in rows).encode()).hexdigest()
        with whole_file(self.folder / f"{name}.parquet") as stream:
            write_rows(rows, stream)
