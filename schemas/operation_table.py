"""Measured seconds of every operation of a decoder layer: Park & Egger's profile (PARK-46, 47).

Rows hold what was measured; what a row lacks is derived from the machine's rooflines."""

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from helmsman.schemas.base import Count, Document, Frozen, Index, Name, mistake, version
from helmsman.schemas.cache_use import PLAIN, CacheUse
from helmsman.schemas.figures import Delay, Figure
from helmsman.schemas.formats import KvFormat, StoredFormat
from helmsman.schemas.repeated_names import first_repeated

OperationName = Literal[
    "norm1", "q", "k", "v", "append", "scores", "softmax", "wv", "attention", "o", "norm2", "gate", "up", "down"
]


class BlockShape(Frozen):
    """The dimensions that make two decoder layers cost the same."""

    hidden: Count
    heads: Count
    kv_heads: Count
    head_dim: Count
    ffn: Count
    gated: bool


class OperationRow(Frozen):
    """Seconds of one operation in one decode step of one batch.

    `host`, `accelerator`: computing it there; `transfer`: bringing what it needs (weights, or keys or values) to the
    accelerator; `transfer_q4`: the same in 4-bit groups; `decompress`: expanding those; `storage`: the uncompressed
    weights from storage to the accelerator."""

    op: OperationName
    host: Delay | None = None
    accelerator: Delay | None = None
    transfer: Delay | None = None
    transfer_q4: Delay | None = None
    decompress: Delay | None = None
    storage: Delay | None = None

    def figures(self) -> Iterator[Figure]:
        """Yield every number of the row."""
        for name in COLUMNS:
            figure: Figure | None = getattr(self, name)
            if figure is not None:
                yield figure


COLUMNS = ("host", "accelerator", "transfer", "transfer_q4", "decompress", "storage")


class OperationTable(Document):
    """One profile: the layer's shape, the workload, who computed, and a row per operation.

    `context`: tokens in the cache of every sequence; `threads`: of the host; `link_busy`: whether the host computed
    while the link was moving weights (PARK-47); `key`: digest of what the profile depends on (PARK-49); `cache`: what
    attention read in it (PARK-66). Attention is one row where it is fused, or scores, softmax and wv."""

    schema_id: Literal["helm.optable/1"] = version("helm.optable/1")
    shape: BlockShape
    batch: Count
    context: Count
    format: StoredFormat = "f16"
    kv_format: KvFormat = "f16"
    host: Name
    accelerator: Name
    threads: Index | None = None
    link_busy: bool = False
    key: Name | None = None
    cache: CacheUse = PLAIN
    rows: Annotated[tuple[OperationRow, ...], Field(min_length=1, max_length=32)]

    @model_validator(mode="after")
    def _complete(self) -> Self:
        names = [row.op for row in self.rows]
        twice = first_repeated(names)
        if twice is not None:
            raise mistake("an operation has two rows", "remove one of them", "rows", twice)
        missing = [op for op in required(self.shape, fused="attention" in names) if op not in names]
        if missing:
            raise mistake(f"rows are missing: {', '.join(missing)}", "measure every operation", "rows", missing[0])
        return self

    @property
    def name(self) -> str:
        """Return the name that it has among a record's sources and figures."""
        return table_name(self.key or f"{self.batch}x{self.context}")

    def row(self, op: str) -> OperationRow | None:
        """Return the row of operation `op`, if there is one."""
        return next((row for row in self.rows if row.op == op), None)


def table_name(key: str) -> str:
    """Return the name of a table with this key."""
    return f"table {key[:16]}"


def required(shape: BlockShape, fused: bool = False) -> tuple[OperationName, ...]:
    """Return the operations a table must have: those of Fig 2 (attention in one row where it is fused), and any
    gate."""
    gate: tuple[OperationName, ...] = ("gate",) if shape.gated else ()
    attention: tuple[OperationName, ...] = ("attention",) if fused else ("scores", "softmax", "wv")
    return ("norm1", "q", "k", "v", *attention, "o", "norm2", *gate, "up", "down")
