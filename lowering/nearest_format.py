"""Substitutes for a quantised format that a record does not know: what was measured in the nearest one."""

from collections.abc import Iterable
from math import log
from typing import Literal, Protocol, TypeVar

from helmsman.schemas.figures import Figure
from helmsman.schemas.formats import StoredFormat, size_of

ASSUMED = "assumed"
"""The source of figures that are of another format."""

_VALUES = 256


class _FormatHolder(Protocol):
    @property
    def format(self) -> StoredFormat | Literal["*"]: ...


FoundT = TypeVar("FoundT", bound=_FormatHolder)


def nearest(fmt: StoredFormat, among: Iterable[FoundT]) -> FoundT | None:
    """Return the one whose format has values nearest to those of `fmt` in size; the first of several."""
    return min(among, key=lambda candidate: _distance(fmt, candidate.format), default=None)


def assumed(figure: Figure) -> Figure:
    """Return a figure that stands for another format than it was measured in."""
    return figure.model_copy(update={"source": ASSUMED})


def _distance(fmt: StoredFormat, other: StoredFormat | Literal["*"]) -> float:
    if other == "*":
        return 0.0
    return abs(log(size_of(_VALUES, fmt) / size_of(_VALUES, other)))
