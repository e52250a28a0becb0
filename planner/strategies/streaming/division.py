"""Units of a layer: which operations a split may cut, and where its chunks begin."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from helmsman.lowering.operation import PANEL
from helmsman.lowering.ops import op_extent
from helmsman.schemas.errors import UsageError
from helmsman.schemas.model import Model

Form = Literal["divided", "fused", "reordered"]
"""How attention is computed: as scores, softmax and weighted values; at once (FlashAttention); at once on cached
activations, between the projections by K and V."""

PAPER_NAMES = {
    "norm1": "LN.0",
    "q": "Q",
    "k": "K",
    "v": "V",
    "scores": "Scores",
    "softmax": "Softmax",
    "wv": "WV",
    "attention": "Attention",
    "o": "Output",
    "norm2": "LN.1",
    "gate": "Gate",
    "up": "FC.0",
    "down": "FC.1",
}


@dataclass(frozen=True, slots=True)
class DivisionPiece:
    """Rows or heads start <= r < stop of an operation; `whole` when that is all of it."""

    op: str
    start: int
    stop: int
    extent: int

    @property
    def whole(self) -> bool:
        """Whether nothing of the operation is elsewhere."""
        return self.start == 0 and self.stop == self.extent


def layer_operations(model: Model, form: Form = "divided") -> tuple[str, ...]:
    """The operations of a layer that have a place of their own, in order (PARK-02); `append` goes with `v`."""
    gate = ("gate",) if model.dense.gated else ()
    attention = {
        "divided": ("k", "v", "scores", "softmax", "wv"),
        "fused": ("k", "v", "attention"),
        "reordered": ("k", "attention", "v"),
    }
    return ("norm1", "q", *attention[form], "o", "norm2", *gate, "up", "down")


def pieces(model: Model, chunks: dict[str, int], form: Form = "divided") -> tuple[DivisionPiece, ...]:
    """Every unit of a layer, in order; `chunks`: into how many an operation is divided.

    Raises UsageError for an operation that cannot be divided, or into so many."""
    result: list[DivisionPiece] = []
    for op in layer_operations(model, form):
        axis, extent = op_extent(model, op)
        extent = extent if op in divisible(model, form) else 1
        parts = chunks.get(op, 1)
        _check(op, axis, extent, parts)
        grain = PANEL if axis == "rows" and parts > 1 else 1
        edges = [min(extent, grain * (-(-extent // grain) * k // parts)) for k in range(parts + 1)]
        result += [DivisionPiece(op, a, b, extent) for a, b in pairwise(edges)]
    return tuple(result)


def divisible(model: Model, form: Form = "divided") -> tuple[str, ...]:
    """The operations that can be divided: scores and wv by KV heads, linear layers by rows.

    Not K and V around attention on cached activations, whose input and output are as wide as the model for every
    head."""
    fixed = ("k", "v") if form == "reordered" else ()
    return tuple(op for op in layer_operations(model, form) if op_extent(model, op)[1] > 1 and op not in fixed)


def most_parts(model: Model, op: str) -> int:
    """Into how many parts a divisible operation can be divided: KV heads, or panels of rows."""
    axis, extent = op_extent(model, op)
    return _most(axis, extent)


def _most(axis: str, extent: int) -> int:
    return extent if axis == "heads" else max(1, extent // PANEL)


def _check(op: str, axis: str, extent: int, parts: int) -> None:
    most = _most(axis, extent)
    if not 1 <= parts <= most:
        what = (
            f"{extent} KV heads" if axis == "heads" else f"{extent} rows, divided by {PANEL}" if most > 1 else "1 part"
        )
        raise UsageError(
            f"{op} has {what}: it cannot be divided into {parts}",
            field="chunks",
            value=parts,
            remedy=f"use 1 to {most} chunks for {op}",
        )


def joined(units: tuple[DivisionPiece, ...]) -> tuple[DivisionPiece, ...]:
    """Neighbouring units of one operation as one piece."""
    result: list[DivisionPiece] = []
    for unit in units:
        if result and result[-1].op == unit.op:
            unit = DivisionPiece(unit.op, result.pop().start, unit.stop, unit.extent)
        result.append(unit)
    return tuple(result)
