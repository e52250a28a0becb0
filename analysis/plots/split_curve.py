"""The search curve as data: seconds of a decoder layer against the split point, lane by lane, and against both."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from helmsman.planner.strategies.streaming.division import PAPER_NAMES, DivisionPiece
from helmsman.schemas.errors import UsageError

if TYPE_CHECKING:
    from helmsman.planner.strategies.op_split.search import Split, SplitSearch

_LANES = ("cpu", "h2d", "decompress", "s2d", "gpu", "total")


@dataclass(frozen=True, slots=True)
class Lines:
    """Seconds of a layer at split points `at`, ascending: by lane, and in all (inf where nothing fits).

    A split point is the number of units before the split; `side`: who computes those."""

    side: Literal["host", "accelerator"]
    at: tuple[int, ...]
    cpu: tuple[float, ...]
    h2d: tuple[float, ...]
    decompress: tuple[float, ...]
    s2d: tuple[float, ...]
    gpu: tuple[float, ...]
    total: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Names:
    """Texts of the picture: the plan's label, what it is of, the papers' name of the total, who is not the host."""

    label: str
    subtitle: str
    symbol: str
    accelerator: str


@dataclass(frozen=True, slots=True)
class SplitCurve:
    """The outcome of a search of operation splits, for drawing.

    `units`: their names, in order; `lines`: single splits with the host before, and with the accelerator before;
    `totals`: (i, j, seconds) of every range searched; `chosen`: (i, j) of the plan, and its seconds."""

    units: tuple[str, ...]
    lines: tuple[Lines, Lines]
    totals: tuple[tuple[int, int, float], ...]
    chosen: tuple[int, int]
    seconds: float
    names: Names


def split_curve(
    split_search: "SplitSearch", pieces: Sequence[DivisionPiece], chosen: "Split", names: Names
) -> SplitCurve:
    """Return the curves of a search over the units `pieces`.

    Raises UsageError when fewer than two splits were searched: there is no curve."""
    count = len(pieces)
    pairs = list(zip(split_search.start.tolist(), split_search.stop.tolist(), strict=True))
    prefix = {i: row for row, (i, j) in enumerate(pairs) if j == count}
    suffix = {j: row for row, (i, j) in enumerate(pairs) if i == 0}
    if len(prefix) < 2:
        remedy = "leave out what allows one split only"
        raise UsageError("there is no curve: only one split was searched", field="--plot", remedy=remedy)
    lines = (_lines(split_search, "host", prefix), _lines(split_search, "accelerator", suffix))
    totals = ((i, j, total) for (i, j), total in zip(pairs, split_search.lanes.total.tolist(), strict=True))
    return SplitCurve(
        units=tuple(_unit_names(pieces)),
        lines=lines,
        totals=tuple(totals),
        chosen=(chosen.start, chosen.stop),
        seconds=chosen.seconds,
        names=names,
    )


def _lines(split_search: "SplitSearch", side: Literal["host", "accelerator"], rows: dict[int, int]) -> Lines:
    at = sorted(rows)
    order = [rows[point] for point in at]
    columns = {name: tuple(getattr(split_search.lanes, name)[order].tolist()) for name in _LANES}
    return Lines(side=side, at=tuple(at), **columns)


def _unit_names(pieces: Sequence[DivisionPiece]) -> Iterator[str]:
    """Yield names of the paper, with the number of the chunk where there are several."""
    for place, piece in enumerate(pieces):
        name = PAPER_NAMES.get(piece.op, piece.op)
        chunks = [k for k, other in enumerate(pieces) if other.op == piece.op]
        yield name if len(chunks) == 1 else f"{name} {place - chunks[0] + 1}/{len(chunks)}"
