"""The latencies of one decoder layer's operations: all that the search of operation splits knows.

A *unit* is a whole operation or one chunk of it; units are in the order of computation. Every column is in seconds
per unit. Columns are the arrays C, G, H, D and S of Park & Egger section 4.2, with H parted into weights (moved once
per layer) and cache (moved for every batch), and each of them once more as it is when compressed.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from helmsman.schemas.errors import BadInputError

COLUMNS = (
    "host",
    "accelerator",
    "weights",
    "cache",
    "weights_q",
    "cache_q",
    "decompress_weights",
    "decompress_cache",
    "storage",
    "staged",
)


@dataclass(frozen=True, slots=True)
class Unit:
    """Chunk `chunk` of the `chunks` that operation `op` is divided into; a whole operation is 0 of 1."""

    op: str
    chunk: int = 0
    chunks: int = 1


@dataclass(frozen=True, slots=True)
class LayerTable:
    """One layer's latencies in seconds per unit; raises BadInputError if they cannot be latencies.

    host: computing the unit on the host, one batch (C); accelerator: the same there (G); weights: its weights over
    the link, once per layer (H); cache: its KV over the link, one batch (H); weights_q, cache_q: the same transfers
    compressed; decompress_weights, decompress_cache: unpacking them (D); storage: its weights from storage to the
    accelerator, 0 for a unit that has none or whose weights cannot come from there (S; KV never does, E-PARK-16), by
    all devices together; staged: those weights over the link, when they come through host memory.
    """

    units: tuple[Unit, ...]
    host: tuple[float, ...]
    accelerator: tuple[float, ...]
    weights: tuple[float, ...]
    cache: tuple[float, ...]
    weights_q: tuple[float, ...]
    cache_q: tuple[float, ...]
    decompress_weights: tuple[float, ...]
    decompress_cache: tuple[float, ...]
    storage: tuple[float, ...]
    staged: tuple[float, ...]

    def __post_init__(self) -> None:
        _check_units(self.units)
        for name in COLUMNS:
            _check_column(name, getattr(self, name), self.units)
        for unit, weights, storage in zip(self.units, self.weights, self.storage, strict=True):
            if storage > 0 and weights == 0:
                raise BadInputError("an operation without weights cannot come from storage", field=f"storage.{unit.op}")


def layer_table(ops: Sequence[str], columns: Mapping[str, Sequence[float]]) -> LayerTable:
    """A table of whole operations in order; columns that are not given are zero. Raises BadInputError."""
    unknown = sorted(set(columns) - set(COLUMNS))
    if unknown:
        raise BadInputError("not a column of a layer's latencies", field=unknown[0], remedy=f"one of {COLUMNS}")
    none = (0.0,) * len(ops)
    filled = {name: tuple(columns.get(name, none)) for name in COLUMNS}
    return LayerTable(units=tuple(Unit(op) for op in ops), **filled)


def operations(table: LayerTable) -> tuple[str, ...]:
    """The operations of the layer in order, each once."""
    return tuple(op for op, _ in groupby(unit.op for unit in table.units))


def storable(table: LayerTable) -> tuple[str, ...]:
    """The operations whose weights can come from storage, in order."""
    return tuple(dict.fromkeys(unit.op for unit, storage in zip(table.units, table.storage, strict=True) if storage))


def chunked(table: LayerTable, parts: Mapping[str, int | Sequence[float]]) -> LayerTable:
    """The table with the operations of `parts` divided into that many equal chunks, or by these fractions.

    A chunk takes its fraction of every latency of the operation (section 3.2: an intra-operation split). Fractions
    must be positive and sum to 1. Raises BadInputError for an unknown or already divided operation.
    """
    whole = {unit.op for unit in table.units if unit.chunks == 1}
    for op in parts:
        if op not in whole:
            raise BadInputError("no whole operation of this name", field=op, remedy=f"one of {sorted(whole)}")
    shares = [_fractions(unit.op, parts[unit.op]) if unit.op in parts else (1.0,) for unit in table.units]
    units = tuple(
        _chunk(u, k, len(part)) for u, part in zip(table.units, shares, strict=True) for k in range(len(part))
    )
    columns = {name: divided(getattr(table, name), shares) for name in COLUMNS}
    return replace(table, units=units, **columns)


def _chunk(unit: Unit, chunk: int, chunks: int) -> Unit:
    return unit if chunks == 1 else Unit(unit.op, chunk, chunks)


def divided(column: Iterable[float], shares: Iterable[Sequence[float]]) -> tuple[float, ...]:
    """A column of operations as one of their chunks, which are these shares of each."""
    return tuple(value * share for value, part in zip(column, shares, strict=True) for share in part)


def _fractions(op: str, part: int | Sequence[float]) -> tuple[float, ...]:
    """The fractions of the chunks of `op`."""
    if isinstance(part, int):
        if part < 1:
            raise BadInputError("an operation has at least one chunk", field=op, value=part)
        return (1.0 / part,) * part
    fractions = tuple(part)
    if not fractions or not all(share > 0 for share in fractions) or abs(math.fsum(fractions) - 1) > 1e-9:
        raise BadInputError("the fractions of an operation's chunks are positive and sum to 1", field=op, value=part)
    return fractions


def _check_units(units: tuple[Unit, ...]) -> None:
    if not units:
        raise BadInputError("a layer needs at least one operation", field="units")
    runs = [(op, tuple(run)) for op, run in groupby(units, key=lambda unit: unit.op)]
    if len({op for op, _ in runs}) < len(runs):
        raise BadInputError("every operation occurs once, its chunks together", field="units")
    for op, run in runs:
        if run != tuple(Unit(op, chunk, len(run)) for chunk in range(len(run))):
            raise BadInputError("the chunks of an operation are in order and complete", field=f"units.{op}")


def _check_column(name: str, column: tuple[float, ...], units: tuple[Unit, ...]) -> None:
    if len(column) != len(units):
        remedy = f"give {len(units)}, one for every unit"
        raise BadInputError("wrong number of latencies", field=name, value=len(column), remedy=remedy)
    for unit, seconds in zip(units, column, strict=True):
        if not (math.isfinite(seconds) and seconds >= 0):
            remedy = "latencies are finite seconds, zero or more"
            raise BadInputError("not a latency", field=f"{name}.{unit.op}", value=seconds, remedy=remedy)
