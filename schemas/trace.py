"""Trace: one row per task execution, the same columns from the predictor, the simulator and the executor.

Stored as Parquet with page checksums; the file's metadata holds a `TraceInfo`."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from helmsman.schemas.base import Count, Document, Frozen, Name, NonNegative, Sha256, version
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.read import parse_document

if TYPE_CHECKING:
    import pyarrow as pa

SourceKind = Literal["predicted", "simulated", "measured"]
METADATA_KEY = b"helm.trace"
MAX_ROWS = 20_000_000


@dataclass(frozen=True, slots=True)
class Span:
    """One execution of one task; `task` is the id that lowering gave it, the key of every join.

    `layer` is -1 outside blocks; times in seconds from the run's start."""

    run: int
    source: SourceKind
    task: str
    iteration: int
    request: int
    phase: str
    layer: int
    op: str
    resource: str
    start_s: float
    end_s: float
    bytes: int
    flops: float


class Probe(Frozen):
    """A bandwidth measured beside a run, and the same probe when the hardware was profiled."""

    what: Literal["read", "link"]
    name: Name = Field(description="device (read) or link lane (link)")
    run: int
    value: NonNegative = Field(description="bytes/s")


class TraceInfo(Document):
    """What a Trace belongs to, kept in the Parquet metadata."""

    schema_id: Literal["helm.trace/1"] = version("helm.trace/1")
    source: SourceKind
    plan_sha256: Sha256
    runs: Count = 1
    probes: Annotated[tuple[Probe, ...], Field(max_length=100_000)] = ()
    notes: dict[Name, str | int | float] = Field(default_factory=dict)


@dataclass(frozen=True)
class Trace:
    """Spans and what they belong to."""

    info: TraceInfo
    spans: Sequence[Span]


def arrow_schema() -> "pa.Schema":
    """The fixed Arrow schema of a Trace."""
    import pyarrow as pa

    types = {"int": pa.int64(), "float": pa.float64(), "str": pa.string(), "SourceKind": pa.string()}
    kinds = {f.name: f.type if isinstance(f.type, str) else getattr(f.type, "__name__", "str") for f in fields(Span)}
    return pa.schema([pa.field(name, types.get(str(kind), pa.string()), False) for name, kind in kinds.items()])


def write_trace(trace: Trace, stream: IO[bytes]) -> None:
    """Write Parquet with page checksums to an open binary stream."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, list[Any]] = {f.name: [getattr(span, f.name) for span in trace.spans] for f in fields(Span)}
    metadata = {METADATA_KEY: trace.info.to_json(indent=None).encode()}
    table = pa.table(columns, schema=arrow_schema().with_metadata(metadata))
    pq.write_table(table, stream, write_page_checksum=True, compression="zstd")


def read_trace(path: Path) -> Trace:
    """Read and verify a Trace.

    Raises BadInputError for a missing or corrupt file, another schema, or metadata that is not a TraceInfo."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
        metadata = (file.schema_arrow.metadata or {}).get(METADATA_KEY)
        if metadata is None or not file.schema_arrow.equals(arrow_schema()):
            raise BadInputError("not a Helm trace", file=str(path), remedy="use a file written by --trace")
        if file.metadata.num_rows > MAX_ROWS:
            raise BadInputError(f"more than {MAX_ROWS} rows", file=str(path))
        rows = file.read().to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise BadInputError(f"cannot be read as Parquet: {_first_line(error)}", file=str(path)) from None
    return Trace(parse_document(TraceInfo, metadata, str(path)), [Span(**row) for row in rows])


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
