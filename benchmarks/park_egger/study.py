"""What a figure of the paper becomes: rows, published numbers beside ours, notes where they differ."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.park_egger.answer import Row, Value
from benchmarks.park_egger.published import PUBLISHED
from helmsman.schemas.errors import BadInputError


@dataclass(frozen=True, slots=True)
class Found:
    """Our value of the published number `fact`, in its unit."""

    fact: str
    value: float


@dataclass(frozen=True, slots=True)
class Study:
    """One figure. `rows` have the same keys; `found`: what the paper gives a number for; `notes`: for readers."""

    figure: str
    title: str
    rows: tuple[Row, ...]
    found: tuple[Found, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Published:
    """A number of the paper: where it stands, what it is, its unit."""

    where: str
    what: str
    value: float
    unit: str


Facts = Mapping[str, Published]


def published(path: Path | None) -> Facts:
    """The numbers that studies compare with; those that the file `path` gives replace the known ones.

    The file: a list of objects with `id`, `value`, and optionally `where`, `quantity`, `unit`. Raises BadInputError."""
    known = {name: Published(*each) for name, each in PUBLISHED.items()}
    if path is None:
        return known
    try:
        given = {each["id"]: each for each in json.loads(path.read_bytes())}
        return {name: _replaced(each, given.get(name.partition(".")[0]), name) for name, each in known.items()}
    except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
        remedy = "give a list of objects with id and value"
        raise BadInputError(f"not a file of facts: {error}", file=str(path), remedy=remedy) from None


def _replaced(known: Published, given: Mapping[str, object] | None, name: str) -> Published:
    """A value of the file; `name.2` is the third of a list, the number after `x` of `4x60` counts."""
    if given is None:
        return known
    value = given["value"]
    if isinstance(value, list):
        value = value[int(name.partition(".")[2] or 0)]
    if isinstance(value, str):
        value = value.rpartition("x")[2]
    return Published(known.where, known.what, float(str(value)), known.unit)


def compared(study: Study, facts: Facts) -> Iterator[Row]:
    """Published beside ours, with the signed error: (ours - published) / published."""
    for found in study.found:
        fact = facts[found.fact]
        error = (found.value - fact.value) / abs(fact.value)
        head: Row = {"fact": found.fact, "where": fact.where, "what": fact.what, "unit": fact.unit}
        yield {**head, "published": fact.value, "ours": found.value, "error": error}


def text(study: Study, facts: Facts) -> str:
    """The study for people."""
    parts = [f"== {study.figure}: {study.title}", *lines(study.rows)]
    parts += ["", *lines([_percented(each) for each in compared(study, facts)])] if study.found else []
    return "\n".join([*parts, *(f"- {note}" for note in study.notes), ""])


def lines(rows: Sequence[Row]) -> Iterator[str]:
    """A table with a column for every key, as wide as its widest value; nothing for no rows."""
    if not rows:
        return
    cells = [[*rows[0]], *([_cell(value) for value in row.values()] for row in rows)]
    wide = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, wide, strict=True)).rstrip()


def _percented(row: Row) -> Row:
    error = row["error"]
    return {**row, "error": f"{error:+.1%}" if isinstance(error, float) else error}


def _cell(value: Value) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    return "-" if value is None else str(value)


def document(studies: Iterable[Study], facts: Facts) -> str:
    """Every study as JSON."""
    found = [
        {
            "figure": study.figure,
            "title": study.title,
            "rows": list(study.rows),
            "compared": list(compared(study, facts)),
            "notes": list(study.notes),
        }
        for study in studies
    ]
    return json.dumps(found, indent=1) + "\n"
