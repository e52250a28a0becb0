"""What a redrawn figure is: axes, lines or bars as values, and what was published beside ours."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from helmsman.schemas.errors import BadInputError

if TYPE_CHECKING:
    import matplotlib.figure

Value = str | float | int | bool | None
Row = dict[str, Value]
At = str | float
"""A place on the x axis: a number, or the name of a group of bars."""
Kind = Literal["lines", "bars"]


@dataclass(frozen=True, slots=True)
class Fact:
    """A published number: where it stands, what it is, its unit; `doubt`: the erratum that questions it."""

    where: str
    what: str
    value: float
    unit: str = ""
    doubt: str = ""


@dataclass(frozen=True, slots=True)
class Axis:
    """What an axis shows, with its unit; `base` of a logarithmic one. `low`, `high`: its ends, where not the data's."""

    label: str
    base: int | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """One line, or one bar of every group: y over x; a y of None is something that does not fit."""

    name: str
    x: tuple[At, ...]
    y: tuple[float | None, ...]
    panel: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """Our value of the published number `fact`, in its unit; None: ours does not fit there.

    Drawn as a star at `at` in the colour of `series`; without `series` it is compared only, without `at` it is a level
    across the panel."""

    fact: str
    ours: float | None
    at: At | None = None
    series: str = ""
    panel: str = ""


@dataclass(frozen=True, slots=True)
class Drawing:
    """What a figure shows; `subtitle`: of what, in one line; `notes`: for readers of the numbers."""

    subtitle: str
    series: tuple[Series, ...]
    found: tuple[Found, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Traces:
    """Where files of requests are; without a folder figures make up lengths (NEO-35)."""

    folder: Path | None = None

    def file(self, name: str) -> Path | None:
        """The file called `name`, None without a folder. Raises BadInputError where the folder lacks it."""
        if self.folder is None:
            return None
        path = self.folder / name
        if not path.is_file():
            remedy = f"put {name} into {self.folder}, or leave out --traces: lengths are made up then"
            raise BadInputError("this figure needs a trace that is not there", file=str(path), remedy=remedy)
        return path


@dataclass(frozen=True, slots=True)
class Result:
    """A figure as tables and pictures: `rows` of the CSV, published numbers beside ours, notes, pictures by name."""

    rows: tuple[Row, ...]
    compared: tuple[Row, ...]
    notes: tuple[str, ...]
    pictures: "tuple[tuple[str, matplotlib.figure.Figure], ...]"


@dataclass(frozen=True, slots=True)
class Figure:
    """One entry of the list: `make` draws it. `traces`: files that it reads where a folder is given."""

    name: str
    title: str
    make: Callable[[Traces], Result]
    traces: tuple[str, ...] = ()


def tidy(series: Iterable[Series]) -> Iterator[Row]:
    """One row a point."""
    for each in series:
        for x, y in zip(each.x, each.y, strict=True):
            yield {"panel": each.panel, "series": each.name, "x": x, "y": y}


def compare(found: Iterable[Found], facts: Mapping[str, Fact]) -> Iterator[Row]:
    """Published beside ours, with the signed error: ours over published, less one; of percentages the difference in
    points."""
    for each in found:
        fact = facts[each.fact]
        place: Row = {"fact": each.fact, "where": fact.where, "what": fact.what, "unit": fact.unit}
        yield {**place, "published": fact.value, "ours": each.ours, **_error(fact, each.ours), "doubt": fact.doubt}


def _error(fact: Fact, ours: float | None) -> Row:
    if ours is None:
        return {"error": None, "points": None}
    points = fact.unit == "%"
    return {"error": None if points else ours / fact.value - 1, "points": ours - fact.value if points else None}
