"""CSV and JSON Lines as Arrow tables of asked columns; what cannot be read is refused by line, column and value."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helmsman.schemas.errors import BadInputError
from helmsman.schemas.read import check_regular, parse_json

if TYPE_CHECKING:
    import pyarrow as pa

MAX_BYTES = 2**30
_HEADER_BYTES = 2**16
_CELL = re.compile(r"CSV column #(\d+): (?:Row #(\d+): )?.* error to ([^:\[ ]+).*?: invalid value '(.*)'", re.DOTALL)
_ROW = re.compile(r"Row #(\d+): (Expected \d+ columns, got \d+)")
_KINDS = {"int64": "a whole number", "double": "a number", "timestamp": "a time such as 2023-11-16 18:15:46.6805900"}


def csv_header(path: Path) -> tuple[str, ...]:
    """Return the names in the first line of a CSV file. Raises BadInputError where there is none."""
    first = read_start(path).splitlines()
    if not first or not first[0].strip():
        raise BadInputError("an empty file", file=str(path), remedy="write a line of column names, and one per request")
    return tuple(name.strip().strip('"') for name in first[0].split(","))


def read_start(path: Path) -> str:
    """Return the first letters of a file that is not too large. Raises BadInputError, also for a pipe or a device, of
    which the beginning can be read once, or the end never."""
    remedy = "check the path and its permissions"
    try:
        check_regular(path)
        with path.open("rb") as stream:
            start, size = stream.read(_HEADER_BYTES), path.stat().st_size
    except OSError as error:
        raise BadInputError(f"cannot be read: {error.strerror}", file=str(path), remedy=remedy) from None
    if size > MAX_BYTES:
        raise BadInputError(f"larger than {MAX_BYTES} bytes", file=str(path), remedy="use a part of it")
    return start.decode("utf-8-sig", errors="replace")


def csv_line(row: int) -> int:
    """Return the line, counted from 1, of a row of CSV, counted from 0: the first line holds the names."""
    return row + 2


def read_csv(path: Path, types: "Mapping[str, pa.DataType]") -> "pa.Table":
    """Return the columns that `types` names. Raises BadInputError."""
    import pyarrow as pa
    from pyarrow import csv

    header = csv_header(path)
    if missing := [name for name in types if name not in header]:
        remedy = f"the file has {', '.join(header)}"
        raise BadInputError("missing column", file=str(path), field=missing[0], remedy=remedy)
    if repeated := [name for name in types if header.count(name) > 1]:
        raise BadInputError("the column is there twice", file=str(path), field=repeated[0], remedy="remove one")
    reading = csv.ReadOptions(use_threads=False, column_names=list(header), skip_rows=1)
    converting = csv.ConvertOptions(column_types=dict(types), include_columns=list(types), null_values=[])
    try:
        return csv.read_csv(path, read_options=reading, convert_options=converting)
    except (pa.ArrowException, OSError) as error:
        raise _csv_problem(str(error), path, header) from None


def _csv_problem(text: str, path: Path, header: tuple[str, ...]) -> BadInputError:
    """Return the error that Arrow reports, by line and column."""
    if match := _CELL.search(text):
        column, row, kind, value = match.groups()
        place = f"line {row}, {header[int(column)]}" if row else header[int(column)]
        message, remedy = f"not {_KINDS.get(kind, kind)}", "leave the row out, or correct it"
        return BadInputError(message, file=str(path), field=place, value=value, remedy=remedy)
    if match := _ROW.search(text):
        message, remedy = match[2].lower(), "write as many values as there are column names"
        return BadInputError(message, file=str(path), field=f"line {match[1]}", remedy=remedy)
    if "Empty CSV" in text:
        return BadInputError("no requests", file=str(path), remedy="add at least one row")
    return BadInputError(f"cannot be read as CSV: {text.splitlines()[0]}", file=str(path), remedy="correct the file")


def read_jsonl(path: Path, schema: "pa.Schema") -> "pa.Table":
    """Return the fields of `schema` from a file with one JSON object a line; others are ignored. Raises
    BadInputError."""
    import pyarrow as pa
    from pyarrow import json

    read_start(path)
    parsing = json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    try:
        reading = json.ReadOptions(use_threads=False, block_size=_block_size(path))
        table = json.read_json(path, read_options=reading, parse_options=parsing)
    except (pa.ArrowException, OSError) as error:
        raise _jsonl_problem(str(error), path, schema) from None
    if any(table.column(name).null_count for name in schema.names):
        raise _jsonl_problem("a field is missing", path, schema)
    return table


def _block_size(path: Path) -> int:
    """Return bytes read together; a line may not be longer than that."""
    return max(2**22, min(path.stat().st_size, 2**27))


def _jsonl_problem(text: str, path: Path, schema: "pa.Schema") -> BadInputError:
    """Return the first line that is no object with the fields asked for; Arrow does not say which it is."""
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        if line.strip():
            try:
                _check_line(parse_json(line, str(path)), schema)
            except BadInputError as error:
                error.file = str(path)
                error.field = f"line {number}" + (f", {error.field}" if error.field else "")
                return error
    if "Empty JSON" in text:
        return BadInputError("an empty file", file=str(path), remedy="write one JSON object a line, one per request")
    return BadInputError(f"cannot be read as JSON Lines: {text.splitlines()[0]}", file=str(path), remedy="correct it")


def _check_line(content: Any, schema: "pa.Schema") -> None:
    """Raise BadInputError for the first field that is missing or of another type."""
    import pyarrow as pa

    if not isinstance(content, dict):
        raise BadInputError("a JSON object is expected", value=content, remedy="write one object in braces a line")
    for column in schema:
        value = content.get(column.name)
        if value is None:
            raise BadInputError("missing field", field=column.name, remedy="add it")
        if not _fits(value, column.type):
            message = f"not {'a list of whole numbers' if pa.types.is_list(column.type) else _kind(column.type)}"
            raise BadInputError(message, field=column.name, value=value, remedy="correct the line")


def _fits(value: Any, kind: "pa.DataType") -> bool:
    """Whether a JSON value has a type, as Arrow's own reader sees it (`pa.scalar` would cut decimals off)."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        return isinstance(value, dict) and all(
            value.get(part.name) is None or _fits(value[part.name], part.type) for part in kind
        )
    if pa.types.is_list(kind):
        return isinstance(value, list) and all(_fits(part, kind.value_type) for part in value)
    if isinstance(value, bool):
        return False
    if pa.types.is_integer(kind):
        return isinstance(value, int) and -(2**63) <= value < 2**63
    return isinstance(value, int | float)


def _kind(kind: "pa.DataType") -> str:
    return _KINDS.get(str(kind), str(kind))


def line_of(path: Path, row: int) -> int:
    """Return the line, counted from 1, of a row of JSON Lines, counted from 0: blank lines are no rows."""
    lines = [number for number, line in enumerate(path.read_bytes().splitlines(), start=1) if line.strip()]
    return lines[row]
