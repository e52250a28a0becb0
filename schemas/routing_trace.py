"""RoutingTrace: the experts that every token of a run chose, layer by layer.

Stored as Parquet that shows every change, one row for a token in a layer; the metadata holds a `RoutingTraceInfo`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, NoReturn

from pydantic import Field

from helmsman.schemas.base import Count, Document, Frozen, Index, Name, Sha256, version
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.parquet import Kind, read_table, reading, verified, write_table
from helmsman.schemas.read import parse_document

if TYPE_CHECKING:
    import pyarrow as pa

KIND = Kind(
    b"helm.routing-trace",
    "Helm routing trace",
    "use a file written by --routing-trace",
    "record the trace again",
)
MAX_ROWS = 20_000_000
"""Rows of a file at most: 400,000 tokens of a model of 48 layers."""


class RoutedLayer(Frozen):
    """A block whose tokens choose `chosen` of `experts` experts."""

    layer: Index
    experts: Count
    chosen: Count


class RoutingTraceInfo(Document):
    """Names what a RoutingTrace belongs to; kept in the Parquet metadata."""

    schema_id: Literal["helm.routing-trace/1"] = version("helm.routing-trace/1")
    model: Name
    model_sha256: Sha256
    layers: Annotated[tuple[RoutedLayer, ...], Field(min_length=1, max_length=4096)]
    notes: dict[Name, str | int | float] = Field(default_factory=dict)


class TokenChoice(NamedTuple):
    """The experts that one token chose in one layer.

    `iteration`: the number of the pass; `sequence`: of the batch, or the request's number; `position`: of the token in
    its sequence; `experts`: as the router ordered them."""

    iteration: int
    layer: int
    sequence: int
    position: int
    experts: tuple[int, ...]


@dataclass(frozen=True)
class RoutingTrace:
    """Choices in order of passes, of layers within a pass, and of tokens within a layer; and what they belong to."""

    info: RoutingTraceInfo
    choices: Sequence[TokenChoice]

    def passes(self, layer: int) -> list[frozenset[int]]:
        """Return by pass, in order, the distinct experts that its tokens chose in a layer."""
        chosen: dict[int, set[int]] = {}
        for choice in self.choices:
            if choice.layer == layer:
                chosen.setdefault(choice.iteration, set()).update(choice.experts)
        return [frozenset(experts) for experts in chosen.values()]


def routing_arrow_schema() -> "pa.Schema":
    """Return the fixed Arrow schema of a RoutingTrace."""
    import pyarrow as pa

    whole = [pa.field(name, pa.uint32(), False) for name in TokenChoice._fields[:4]]
    return pa.schema([*whole, pa.field("experts", pa.list_(pa.field("item", pa.uint16(), False)), False)])


def write_routing_trace(trace: RoutingTrace, stream: IO[bytes]) -> None:
    """Write Parquet with page checksums to an open binary stream."""
    import pyarrow as pa

    columns = list(zip(*trace.choices, strict=True)) or [()] * len(TokenChoice._fields)
    schema = routing_arrow_schema()
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    table = pa.Table.from_arrays(arrays, schema=schema)
    write_table(KIND, table, trace.info.to_json(indent=None).encode(), _parts(table), stream)


def read_routing_trace(path: Path) -> RoutingTrace:
    """Read and verify a RoutingTrace. Raises BadInputError for a missing or corrupt file, one without choices, layers
    or experts that the file does not list, and tokens that chose too few or too many."""
    with reading(KIND, path):
        stored = read_table(KIND, path, routing_arrow_schema(), MAX_ROWS)
        info = parse_document(RoutingTraceInfo, verified(KIND, stored, _parts(stored.table), path), str(path))
        columns = [stored.table.column(name).to_pylist() for name in TokenChoice._fields]
    rows = zip(*columns, strict=True)
    choices = [TokenChoice(step, layer, sequence, at, tuple(chosen)) for step, layer, sequence, at, chosen in rows]
    _check(info, choices, path)
    return RoutingTrace(info, choices)


def _parts(table: "pa.Table") -> Iterator[bytes]:
    """Yield the bytes of every column: numbers as they are, lists as their lengths and their values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name in TokenChoice._fields:
        column: Any = table.column(name).combine_chunks()
        if pa.types.is_list(column.type):
            yield pc.list_value_length(column).to_numpy(zero_copy_only=False).tobytes()
            column = column.flatten()
        yield column.to_numpy(zero_copy_only=False).tobytes()


def _check(info: RoutingTraceInfo, choices: Sequence[TokenChoice], path: Path) -> None:
    """Raise BadInputError at the first choice that cannot be."""
    if not choices:
        raise BadInputError("no token chose anything", file=str(path), remedy=KIND.again)
    of_layer = {one.layer: one for one in info.layers}
    for row, choice in enumerate(choices):
        layer = of_layer.get(choice.layer)
        if layer is None:
            _refuse(path, row, "a layer without experts", choice.layer)
        if len(set(choice.experts)) != len(choice.experts) or len(choice.experts) != layer.chosen:
            _refuse(path, row, f"not {layer.chosen} distinct experts", list(choice.experts))
        if max(choice.experts) >= layer.experts:
            _refuse(path, row, f"the layer has {layer.experts} experts", max(choice.experts))


def _refuse(path: Path, row: int, message: str, value: object) -> NoReturn:
    raise BadInputError(message, file=str(path), field=f"row {row}", value=value, remedy=KIND.again)
