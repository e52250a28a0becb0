"""Served: one row a request of a serving run, the same from simulator and from a measurement.

Stored as Parquet that shows every change; the file's metadata holds a `ServedInfo`."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from helmsman.schemas.base import Count, Document, Index, Name, Sha256, version
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.parquet import Kind, StoredTable, read_table, reading, verified, write_table
from helmsman.schemas.read import parse_document
from helmsman.schemas.requests import MAX_REQUESTS, Floats, Ints

if TYPE_CHECKING:
    import pyarrow as pa

KIND = Kind(b"helm.served", "table of served requests", "use a file written by helm-sim -o", "write the table again")
STATUSES = ("finished", "cancelled", "rejected", "failed")
FINISHED, CANCELLED, REJECTED, FAILED = range(len(STATUSES))
OVER_PRICE = "_over_price"
"""Ending of notes of a measured run that say, after a part of the server's passes, what it took over its price."""
PASS_PARTS = ("pass", "device", "host")
"""Of whose seconds a server keeps sums: whole passes, the work of the device that has the weights, attention to caches
that the host has beside it."""
_GAP = "itl_"
"""Before the names of the columns of `Gaps` in a file."""


class ServedInfo(Document):
    """What a table of served requests belongs to, kept in the Parquet metadata."""

    schema_id: Literal["helm.served/1"] = version("helm.served/1")
    source: Literal["simulated", "measured"]
    plan_sha256: Sha256 | None = None
    policy: Name
    options: dict[Name, str | int | float | bool] = Field(default_factory=dict)
    requests: Name = Field(description="the file or line they came from")
    seed: Index | None = None
    replicas: Count = 1
    router: Name | None = None
    users: Count | None = Field(default=None, description="of a closed loop, who sent the requests")
    think: Name | None = Field(default=None, description="time between an answer and the user's next request")
    notes: dict[Name, str | int | float | bool] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Gaps:
    """Seconds between consecutive tokens (ITL) as runs: gap i < `steps` of a run is `first_s` + i x `step_s`, and
    `weight` requests had it. `on_cpu`: attention of these requests was on the host.

    Row r of the table has the runs `start[r]` to `start[r + 1]`; of a simulation, whose runs are of several requests
    together, they are those of all rows, and which row has a run means nothing."""

    start: Ints
    first_s: Floats
    step_s: Floats
    steps: Ints
    weight: Ints
    on_cpu: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ServedTable:
    """n requests by arrival. Times are seconds of one clock, nan where it did not come to that: `started_s` (first
    scheduled), `first_token_s`, `finish_s` (the last token; of others when they left). `output_tokens` were asked for,
    `produced` came, `cpu_tokens` of them with attention on the host; `status` is a place in STATUSES; `preemptions`
    (by swap or recompute); `reused_tokens` of the prompt's prefix were not computed; `replica` served it (-1: none)."""

    info: ServedInfo
    request: Ints
    arrival_s: Floats
    started_s: Floats
    first_token_s: Floats
    finish_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    produced: Ints
    status: Ints
    cpu_tokens: Ints
    preemptions: Ints
    reused_tokens: Ints
    replica: Ints
    gaps: Gaps

    def __len__(self) -> int:
        return len(self.request)


_FLOATS = ("arrival_s", "started_s", "first_token_s", "finish_s")
_COLUMNS = tuple(f.name for f in fields(ServedTable) if f.name not in ("info", "gaps"))
_GAPS = tuple(f.name for f in fields(Gaps) if f.name != "start")


def arrow_schema() -> "pa.Schema":
    """Return the fixed Arrow schema of the table."""
    import pyarrow as pa

    kinds = {**dict.fromkeys(_FLOATS, pa.float64()), "status": pa.string()}
    columns = [pa.field(name, kinds.get(name, pa.int64()), False) for name in _COLUMNS]
    gaps = {"first_s": pa.float64(), "step_s": pa.float64(), "on_cpu": pa.bool_()}
    lists = [
        pa.field(f"{_GAP}{name}", pa.list_(pa.field("element", gaps.get(name, pa.int64()), False)), False)
        for name in _GAPS
    ]
    return pa.schema([*columns, *lists])


def write_served(served: ServedTable, stream: IO[bytes]) -> None:
    """Write Parquet with page checksums to an open binary stream."""
    import pyarrow as pa

    schema, start = arrow_schema(), served.gaps.start.astype(np.int32)
    columns: list[Any] = [getattr(served, name) for name in _COLUMNS]
    columns[_COLUMNS.index("status")] = pa.array(STATUSES).take(pa.array(served.status))
    for name in _GAPS:
        values = pa.array(getattr(served.gaps, name))
        columns.append(pa.ListArray.from_arrays(start, values, type=schema.field(f"{_GAP}{name}").type))
    table = pa.table(columns, schema=schema)
    write_table(KIND, table, served.info.to_json(indent=None).encode(), _parts(served), stream)


def read_served(path: Path) -> ServedTable:
    """Read and verify a table: nothing that was altered on its way is returned.

    Raises BadInputError for a missing or corrupt file, another schema, or rows that cannot be."""
    with reading(KIND, path):
        stored = read_table(KIND, path, arrow_schema(), MAX_REQUESTS)
        served = _taken(stored)
    info = verified(KIND, stored, _parts(served), path)
    return check_served(_with_info(served, parse_document(ServedInfo, info, str(path))), path)


def _taken(stored: StoredTable) -> ServedTable:
    """Return the columns of a file, without its document."""
    import pyarrow as pa
    import pyarrow.compute as pc

    table = stored.table
    columns = {name: table.column(name) for name in _COLUMNS}
    columns["status"] = pc.fill_null(pc.index_in(columns["status"], pa.array(STATUSES)).cast(pa.int64()), -1)
    lists = {name: table.column(f"{_GAP}{name}").combine_chunks() for name in _GAPS}
    start = np.concatenate([[0], np.cumsum(pc.list_value_length(lists["steps"]).to_numpy(zero_copy_only=False))])
    values = {name: column.flatten().to_numpy(zero_copy_only=False) for name, column in lists.items()}
    gaps = Gaps(start=start.astype(np.int64), **values)
    return ServedTable(info=_NO_INFO, gaps=gaps, **{name: column.to_numpy() for name, column in columns.items()})


_NO_INFO = ServedInfo(source="measured", policy="none", requests="none")


def _with_info(served: ServedTable, info: ServedInfo) -> ServedTable:
    return ServedTable(info, *(getattr(served, f.name) for f in fields(ServedTable)[1:]))


def _parts(served: ServedTable) -> Iterator[bytes]:
    """Yield every value as bytes, column by column."""
    for name in _COLUMNS:
        yield getattr(served, name).tobytes()
    for field in fields(Gaps):
        yield getattr(served.gaps, field.name).tobytes()


def check_served(served: ServedTable, path: Path) -> ServedTable:
    """Return the same table. Raises BadInputError at the first row that cannot be."""
    if len(served) and int(served.status.min()) < 0:
        _refuse(path, int(np.argmin(served.status)), "unknown status", None)
    times = [getattr(served, name) for name in _FLOATS]
    _check_rows(path, ~np.isfinite(served.arrival_s), "no time of arrival", served.arrival_s)
    for before, after, name in zip(times[:2], times[1:3], ("started_s", "first_token_s"), strict=True):
        _check_rows(path, before > after, f"times out of order at {name}", after)
    for before in times[:3]:
        _check_rows(path, before > served.finish_s, "times out of order at finish_s", served.finish_s)
    done = served.status == FINISHED
    _check_rows(
        path, done & ~np.isfinite(served.first_token_s + served.finish_s), "finished at no time", served.finish_s
    )
    for name in ("prompt_tokens", "output_tokens", "produced", "cpu_tokens", "preemptions", "reused_tokens"):
        _check_rows(path, getattr(served, name) < 0, f"a negative number of {name}", getattr(served, name))
    _check_gaps(served.gaps, path)
    return served


def _check_gaps(gaps: Gaps, path: Path) -> None:
    last = gaps.first_s + gaps.step_s * (gaps.steps - 1)
    wrong = ~((gaps.first_s >= 0.0) & (last >= -1e-9) & (gaps.steps > 0) & (gaps.weight > 0) & np.isfinite(last))
    if wrong.any():
        run = int(np.argmax(wrong))
        row = int(np.searchsorted(gaps.start, run, side="right")) - 1
        _refuse(path, row, "gaps between tokens that cannot be", (float(gaps.first_s[run]), float(gaps.step_s[run])))


def _check_rows(path: Path, wrong: NDArray[np.bool_], message: str, values: Floats | Ints) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        _refuse(path, row, message, values[row].item())


def _refuse(path: Path, row: int, message: str, value: object) -> NoReturn:
    raise BadInputError(message, file=str(path), field=f"row {row}", value=value, remedy=KIND.again)
