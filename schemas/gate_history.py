"""The history of a case: its manifest, and its entries, each the runs of one measurement in a Parquet file."""

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from helmsman.schemas.base import Document, Frozen, Name, NonNegative, Sha256, Words, mistake, version
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.gate_report import GateVerdict
from helmsman.schemas.parquet import Kind, read_table, reading, verified, write_table
from helmsman.schemas.read import parse_document
from helmsman.schemas.repeated_names import first_repeated

if TYPE_CHECKING:
    import pyarrow as pa

KIND = Kind(b"helm.gate-entry", "entry of a case's history", "use what helm-check suite wrote", "restore the file")
MAX_ROWS = 1_000_000
_MOST_FILES = 100_000


class HistoryFile(Frozen):
    """A file of a history by its name and the digest of its bytes."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]{0,199}$")]
    sha256: Sha256


class HistoryManifest(Document):
    """All files of a history in the order in which they came; `accepted`: the names of entries that became the
    baseline, the newest last."""

    schema_id: Literal["helm.gate-manifest/1"] = version("helm.gate-manifest/1")
    files: Annotated[tuple[HistoryFile, ...], Field(max_length=_MOST_FILES)] = ()
    accepted: Annotated[tuple[Name, ...], Field(max_length=_MOST_FILES)] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [file.name for file in self.files]
        if len(set(names)) != len(names):
            raise mistake("a file is listed twice", "restore the manifest", "files", first_repeated(names))
        for name in self.accepted:
            if name not in names:
                raise mistake("not a file of the history", "restore the manifest", "accepted", name)
        return self


class GateEntry(Document):
    """The facts about an entry's runs, kept in the Parquet metadata. `measured`: when, in UTC; `machine`: where;
    `predicted`, `simulated`: seconds of each figure then; `verdict`: on the case, then."""

    schema_id: Literal["helm.gate-entry/1"] = version("helm.gate-entry/1")
    measured: Words
    helm: Name
    machine: Words
    plan: Name
    plan_sha256: Sha256
    hardware: Name
    hardware_sha256: Sha256
    predicted: dict[Name, NonNegative]
    simulated: dict[Name, NonNegative]
    verdict: GateVerdict


@dataclass(frozen=True, slots=True)
class MeasuredEntry:
    """An entry with the seconds of its runs, by figure, in the order in which they were measured."""

    info: GateEntry
    samples: Mapping[str, tuple[float, ...]]


def arrow_schema() -> "pa.Schema":
    """Return the fixed Arrow schema of an entry: a row for each run of each figure."""
    import pyarrow as pa

    types = {"figure": pa.string(), "run": pa.int64(), "seconds": pa.float64()}
    return pa.schema([pa.field(name, kind, False) for name, kind in types.items()])


def write_entry(entry: MeasuredEntry, stream: IO[bytes]) -> None:
    """Write Parquet with page checksums to an open binary stream."""
    import pyarrow as pa

    rows = [(name, run, value) for name, values in entry.samples.items() for run, value in enumerate(values)]
    columns = {name: [row[place] for row in rows] for place, name in enumerate(("figure", "run", "seconds"))}
    table = pa.table(columns, schema=arrow_schema())
    write_table(KIND, table, entry.info.to_json(indent=None).encode(), _parts(rows), stream)


def read_entry(path: Path) -> MeasuredEntry:
    """Read and verify an entry. Raises BadInputError for a missing or corrupt file, or for seconds that cannot be."""
    with reading(KIND, path):
        stored = read_table(KIND, path, arrow_schema(), MAX_ROWS)
        rows = [(row["figure"], row["run"], row["seconds"]) for row in stored.table.to_pylist()]
    info = verified(KIND, stored, _parts(rows), path)
    samples: dict[str, list[float]] = {}
    for number, (figure, _, seconds) in enumerate(rows):
        if not 0.0 < seconds < float("inf"):
            raise BadInputError("not a time", file=str(path), field=f"row {number}", value=seconds, remedy=KIND.again)
        samples.setdefault(figure, []).append(seconds)
    frozen = {figure: tuple(values) for figure, values in samples.items()}
    return MeasuredEntry(parse_document(GateEntry, info, str(path)), frozen)


def _parts(rows: list[tuple[str, int, float]]) -> Iterator[bytes]:
    """Yield every value as bytes, column by column."""
    yield "\n".join(figure for figure, _, _ in rows).encode()
    yield array("q", [run for _, run, _ in rows]).tobytes()
    yield array("d", [seconds for _, _, seconds in rows]).tobytes()
