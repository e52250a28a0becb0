"""Which rows of the tables are answered, and why the others are not."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.engine_rows.offload import alone_questions
from benchmarks.engine_rows.open_form import as_open_row
from benchmarks.engine_rows.rows import EngineRow, read_tables, table_numbers
from benchmarks.engine_rows.terms import decode_question, prompt_question
from benchmarks.strangers.answers import answer
from benchmarks.strangers.rows import Lack, OpenRow, read_rows

_EXPERTS = "moe_open.csv"
_TABLES = ("single_device_open.csv", "partial_offload_open.csv", "build_era_open.csv")
_NOWHERE: tuple[Lack, ...] = ("model", "engine")


@dataclass(frozen=True, slots=True)
class Answered:
    """A row of a table with the `reason` why Helm does not answer it, empty where it does, and with what the row
    lacks."""

    number: int
    reason: str = ""
    lack: Lack | None = None


def answered_lines(folder: Path, experts: Sequence[OpenRow]) -> Iterator[str]:
    """Yield a table of the shares of rows that are answered, by table of rows, and the others by reason; `experts`: the
    rows of the table with experts."""
    rows = read_tables(folder)
    given = {one.number: one for one in _of_devices(rows)}
    tables = {name: [given[n] for n in table_numbers(folder / name) if n in given] for name in _TABLES}
    if experts:
        tables[_EXPERTS] = [_of_open(row) for row in experts]
    yield "| table | rows | whose model and engine are here | answered | of those | of those that say what ran |"
    yield "|---|---|---|---|---|---|"
    for name, part in tables.items():
        yield _shares(name, part)
    warned = [row.number for row in rows if row.caution]
    yield ""
    yield f"Left out of this are {len(warned)} rows of the first two tables that these warn of. Not answered:"
    yield ""
    for name in (*_TABLES[:2], _EXPERTS):
        for reason, numbers in _reasons(tables.get(name, ())).items():
            yield f"- {name}: {reason}: {', '.join(map(str, numbers))}"


def _of_devices(rows: Sequence[EngineRow]) -> Iterator[Answered]:
    """Yield the rows that their table does not warn of, by what predicts their speeds."""
    alone = {question.row.number for part in alone_questions(rows) for question in part}
    for row in rows:
        if row.caution:
            continue
        if row.split == "cpu_only":
            known = row.number in alone
        elif row.split == "full_gpu" and "llama.cpp" in row.engine:
            known = decode_question(row) is not None or prompt_question(row) is not None
        else:
            yield _of_open(as_open_row(row))
            continue
        yield Answered(row.number) if known else Answered(row.number, "its device is not known", "statement")


def _of_open(row: OpenRow) -> Answered:
    given = answer(row)
    return Answered(row.number, given.reason, given.lack)


def _shares(name: str, rows: Sequence[Answered]) -> str:
    here = [row for row in rows if row.lack not in _NOWHERE]
    said = [row for row in here if row.lack != "statement"]
    good = sum(not row.reason for row in here)
    return f"| {name} | {len(rows)} | {len(here)} | {good} | {_share(good, len(here))} | {_share(good, len(said))} |"


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def _reasons(rows: Iterable[Answered]) -> dict[str, list[int]]:
    """Return the numbers of rows that are not answered, by reason, the most frequent first."""
    numbers = defaultdict[str, list[int]](list)
    for row in rows:
        if row.reason:
            numbers[row.reason].append(row.number)
    return dict(sorted(numbers.items(), key=lambda item: (-len(item[1]), item[1])))


def experts_of(folder: Path) -> tuple[OpenRow, ...]:
    """Return the rows of the table with experts; none where there is no such table."""
    place = folder / _EXPERTS
    return read_rows(place) if place.exists() else ()
