"""Tables of study rows as Parquet files in which no change goes unnoticed."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, get_args

from helmsman.schemas.errors import BadInputError
from helmsman.schemas.parquet import Kind, read_table, reading, verified, write_table
from helmsman.schemas.study_row import StudyRow

if TYPE_CHECKING:
    import pyarrow as pa

_KIND = Kind(b"helm.study-rows/1", "table of study rows", "name a file that helm-whatif wrote", "remove the file")
_MOST_ROWS = 10_000_000


def write_rows(rows: Sequence[StudyRow], stream: IO[bytes]) -> None:
    """Write rows to an open binary stream; the same rows give the same bytes."""
    import pyarrow as pa

    content = [row.model_dump() for row in rows]
    table = pa.Table.from_pylist(content, schema=_schema())
    write_table(_KIND, table, b"{}", _parts(content), stream)


def read_rows(path: Path) -> list[StudyRow]:
    """Return the rows of a file. Raises BadInputError for one that is damaged or something else."""
    with reading(_KIND, path):
        stored = read_table(_KIND, path, _schema(), _MOST_ROWS)
        content = stored.table.to_pylist()
    verified(_KIND, stored, _parts(content), path)
    try:
        return [StudyRow(**row) for row in content]
    except ValueError as error:
        told = str(error).splitlines()[0]
        raise BadInputError(f"not a table of study rows: {told}", file=str(path), remedy=_KIND.again) from None


def _parts(content: Sequence[dict[str, object]]) -> list[bytes]:
    return [json.dumps(row, sort_keys=True).encode() for row in content]


def _schema() -> "pa.Schema":
    """Return the columns: a row's fields by their types."""
    import pyarrow as pa

    types = {int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    fields = []
    for name, field in StudyRow.model_fields.items():
        plain = [kind for kind in get_args(field.annotation) or (field.annotation,) if kind is not type(None)]
        fields.append(pa.field(name, types.get(plain[0], pa.string())))
    return pa.schema(fields)
