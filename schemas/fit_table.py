"""Rows of what a machine can run, as tables for other programs: Parquet, or CSV."""

from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, get_args

from helmsman.schemas.fit_report import FitRow

if TYPE_CHECKING:
    import pyarrow as pa

CSV = ".csv"
"""The ending of files of comma-separated values; others are Parquet."""


def write_fit_rows(rows: Sequence[FitRow], stream: IO[bytes], suffix: str) -> None:
    """Write rows to an open binary stream, CSV or Parquet by the file's ending; the same rows give the same bytes."""
    import pyarrow as pa

    table = pa.Table.from_pylist([row.model_dump() for row in rows], schema=_schema())
    if suffix.lower() == CSV:
        from pyarrow import csv

        csv.write_csv(table, stream)
        return
    from pyarrow import parquet

    parquet.write_table(table, stream)


def _schema() -> "pa.Schema":
    """Return the columns: a row's fields by their types."""
    import pyarrow as pa

    types = {int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    fields = []
    for name, field in FitRow.model_fields.items():
        plain = [kind for kind in get_args(field.annotation) or (field.annotation,) if kind is not type(None)]
        fields.append(pa.field(name, types.get(plain[0], pa.string())))
    return pa.schema(fields)
