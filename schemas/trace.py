"""Trace: one row per task execution, the same columns from the predictor, the simulator and the executor.

Stored as Parquet that shows every change; the file's metadata holds a `TraceInfo`."""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from math import inf
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal, NoReturn, Self, get_args

from pydantic import Field, model_validator

from helmsman.schemas.base import Count, Document, Frozen, Name, Sha256, empty, mistake, version
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.expert_cache import ExpertCacheCounts
from helmsman.schemas.figures import LEAST_SHARE, MOST_SHARE
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.parquet import Kind, read_table, reading, verified, write_table
from helmsman.schemas.read import parse_document

if TYPE_CHECKING:
    import pyarrow as pa

SourceKind = Literal["predicted", "simulated", "measured"]
KIND = Kind(b"helm.trace", "Helm trace", "use a file written by --trace", "write the trace again")
MAX_ROWS = 5_000_000
Probed = Annotated[float, Field(ge=LEAST_SHARE, le=1e24)]
"""The rate or share that a probe reads: bytes/s that something moved, FLOP/s, or a share."""
LEAST_RATE = 1.0
"""The least bytes/s or FLOP/s of a probe: ratios of smaller rates would overflow."""

WHOLE_PASS = "pass"
"""The operation of a span that is all of a pass: engines of others show no more of themselves."""

_SOURCES = frozenset(get_args(SourceKind))
_PHASES = frozenset(("prefill", "decode"))
_ROUNDING_S = 1e-9
"""Seconds by which neighbouring spans may overlap."""


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
    """A rate or a share measured beside a run, as it was when the hardware was profiled.

    `format`, `tokens`: the weights' format and the number of tokens of a probe that multiplies: several tokens in a
    probe of arithmetic, whose matrices are of `PROBED`, one in a probe of reads. `matrix_bytes`: the mean size of the
    matrices in a probe of reads that multiplies; a probe without it reads plainly."""

    what: Literal["read", "link", "compute", "joint", "joint_compute"]
    name: Name = Field(description="device (read, compute), link lane (link) or memory that devices share")
    run: int
    value: Probed = Field(
        description="bytes/s, of all devices together (joint); FLOP/s of a product (compute); the part of these that a "
        "device keeps while all compute (joint_compute)"
    )
    format: StoredFormat | None = None
    tokens: Count | None = None
    matrix_bytes: Count | None = None

    @model_validator(mode="after")
    def _of_its_unit(self) -> Self:
        if self.what == "joint_compute" and self.value > MOST_SHARE:
            raise mistake("too large for a share", f"use at most {MOST_SHARE:g}", "value", self.value)
        if self.what != "joint_compute" and self.value < LEAST_RATE:
            raise mistake("too small for a rate", f"use at least {LEAST_RATE:g} per second", "value", self.value)
        return self


class TraceInfo(Document):
    """What a Trace belongs to, kept in the Parquet metadata; `expert_cache`: what slots for experts did, by run and
    layer."""

    schema_id: Literal["helm.trace/1"] = version("helm.trace/1")
    source: SourceKind
    plan_sha256: Sha256
    runs: Count = 1
    probes: Annotated[tuple[Probe, ...], Field(max_length=100_000)] = ()
    notes: dict[Name, str | int | float] = Field(default_factory=dict)
    expert_cache: Annotated[tuple[ExpertCacheCounts, ...], Field(max_length=100_000, exclude_if=empty)] = ()


@dataclass(frozen=True)
class Trace:
    """Spans and what they belong to."""

    info: TraceInfo
    spans: Sequence[Span]


def arrow_schema() -> "pa.Schema":
    """Return the fixed Arrow schema of a Trace."""
    import pyarrow as pa

    types = {"int": pa.int64(), "float": pa.float64()}
    names = [(f.name, getattr(f.type, "__name__", "text")) for f in fields(Span)]
    return pa.schema([pa.field(name, types.get(kind, pa.string()), False) for name, kind in names])


def write_trace(trace: Trace, stream: IO[bytes]) -> None:
    """Write Parquet with page checksums to an open binary stream."""
    import pyarrow as pa

    columns: dict[str, list[Any]] = {f.name: [getattr(span, f.name) for span in trace.spans] for f in fields(Span)}
    table = pa.table(columns, schema=arrow_schema())
    write_table(KIND, table, trace.info.to_json(indent=None).encode(), _parts(columns.values()), stream)


def read_trace(path: Path) -> Trace:
    """Read and verify a Trace: nothing that was altered on its way is returned.

    Raises BadInputError for a missing or corrupt file, another schema, or metadata that is not a TraceInfo."""
    texts = [f.name for f in fields(Span) if f.type not in (int, float)]
    with reading(KIND, path):
        stored = read_table(KIND, path, arrow_schema(), MAX_ROWS, texts)
        columns = [_values(stored.table.column(f.name).chunks) for f in fields(Span)]
    info = verified(KIND, stored, _parts(columns), path)
    spans = [Span(*row) for row in zip(*columns, strict=True)]
    _check(spans, path)
    return Trace(parse_document(TraceInfo, info, str(path)), spans)


def _values(chunks: Iterable[Any]) -> list[Any]:
    values: list[Any] = []
    for chunk in chunks:
        if hasattr(chunk, "dictionary"):
            texts = chunk.dictionary.to_pylist()
            values += [texts[code] for code in chunk.indices.to_pylist()]
        else:
            values += chunk.to_pylist()
    return values


def _parts(columns: Iterable[list[Any]]) -> Iterator[bytes]:
    """Yield every value as bytes, column by column."""
    for values in columns:
        first = values[0] if values else ""
        if isinstance(first, str):
            yield "\n".join(values).encode()
        else:
            yield array("d" if isinstance(first, float) else "q", values).tobytes()


def _check(spans: Sequence[Span], path: Path) -> None:
    """Rows that can be. Raises BadInputError at the first that cannot."""
    for number, span in enumerate(spans):
        if not 0.0 <= span.start_s <= span.end_s < inf:
            _refuse(path, number, "times out of order", (span.start_s, span.end_s))
        if span.source not in _SOURCES:
            _refuse(path, number, "unknown source", span.source)
        if span.phase not in _PHASES:
            _refuse(path, number, "unknown phase", span.phase)
        if min(span.run, span.iteration, span.request, span.layer + 1) < 0:
            value = (span.run, span.iteration, span.request, span.layer)
            _refuse(path, number, "negative run, iteration, request or layer", value)
        if span.bytes < 0 or not 0.0 <= span.flops < inf:
            _refuse(path, number, "bytes and flops must be finite and not negative", (span.bytes, span.flops))
    _check_lanes(spans, path)


def _check_lanes(spans: Sequence[Span], path: Path) -> None:
    """Spans of one lane never overlap within a run."""
    ordered = sorted(range(len(spans)), key=lambda i: (spans[i].start_s, spans[i].end_s))
    latest: dict[tuple[int, str, str], Span] = {}
    for number in ordered:
        span = spans[number]
        lane = (span.run, span.source, span.resource)
        before = latest.get(lane)
        if before is not None and span.start_s < before.end_s - _ROUNDING_S:
            _refuse(path, number, f"overlaps {before.task!r} on lane {span.resource!r}", span.task)
        if before is None or span.end_s > before.end_s:
            latest[lane] = span


def _refuse(path: Path, row: int, message: str, value: object) -> NoReturn:
    raise BadInputError(message, file=str(path), field=f"row {row}", value=value, remedy="write the trace again")
