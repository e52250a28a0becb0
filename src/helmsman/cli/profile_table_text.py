"""An operation table for people: milliseconds, and what was noticed while it was measured."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from helmsman.schemas.figures import DISTURBED

if TYPE_CHECKING:
    from helmsman.schemas.hardware import Hardware, Reading
    from helmsman.schemas.operation_table import OperationRow, OperationTable

_WIDTH = 13


def table_summary(hardware: "Hardware", table: "OperationTable", name: str) -> str:
    """The table of a layer of model `name`."""
    from helmsman.schemas.hardware import TABLE
    from helmsman.schemas.operation_table import COLUMNS

    shown = [column for column in COLUMNS if any(getattr(row, column) for row in table.rows)]
    threads = "1 thread" if table.threads == 1 else f"{table.threads} threads"
    title = (
        f"one layer of {name}, batch {table.batch}, {table.context} tokens in the cache, {table.format} weights,"
        f" {table.kv_format} KV; host on {threads}; ms"
    )
    head = "  " + "operation".ljust(10) + "".join(column.rjust(_WIDTH) for column in shown)
    rows = ["  " + row.op.ljust(10) + "".join(_cells(row, shown)) for row in table.rows]
    sums = [sum(getattr(row, column).value for row in table.rows if getattr(row, column)) for column in shown]
    last = "  " + "layer".ljust(10) + "".join(_cell(total) for total in sums)
    own = [reading for reading in hardware.readings if reading.conditions.get(TABLE) == table.key]
    return "\n".join([title, head, *rows, last, *_notes(own, table.threads)])


def _cells(row: "OperationRow", shown: list[str]) -> Iterator[str]:
    for column in shown:
        figure = getattr(row, column)
        yield "-".rjust(_WIDTH) if figure is None else _cell(figure.value)


def _cell(seconds: float) -> str:
    return f"{1e3 * seconds:{_WIDTH}.4f}"


def _notes(readings: list["Reading"], chosen: int | None) -> Iterator[str]:
    """Threads that were tried, storage devices and what they carry, what turning caches would add, what measuring cost,
    and how much it was disturbed."""
    from helmsman.executor.profile.table_record import SHARE, TOOK
    from helmsman.schemas.hardware import OTHERS

    yield from _swept(readings, chosen)
    yield from _turned(readings)
    for each in readings:
        value = each.figure.value
        if each.what == SHARE:
            direct = each.conditions["direct"]
            buffered = "" if direct else "; the file system has no direct reads, buffered ones are used"
            yield f"  storage {each.conditions['folder']}: {value:.1%} of every weight{buffered}"
        elif each.what == TOOK:
            yield f"  measured in {value:.1f} s{_parts(readings)}"
        elif each.what == OTHERS and value > DISTURBED:
            yield f"  other processes took {value:.0%} of the CPU time in all"
    yield from _disturbed(readings)


def _disturbed(readings: list["Reading"]) -> Iterator[str]:
    """What stayed disturbed of a table, and that its figures say so."""
    from helmsman.executor.profile.disturbed import DISTURBANCE

    left = {each.conditions["of"]: each.figure.value for each in readings if each.what == DISTURBANCE}
    if left:
        parts, most = ", ".join(map(str, left)), max(left.values())
        told = f"others took up to {most:.0%} of the time of {parts}, whose figures have wider spreads"
        yield f"  disturbed: {told}; measure with --again when nothing else runs"
    yield from unsteady(readings)


def unsteady(readings: Iterable["Reading"]) -> Iterator[str]:
    """How many points of a profile or a table stayed unsteady, if any did."""
    from helmsman.schemas.hardware import LEFT

    for each in readings:
        if each.what == LEFT and each.conditions["of"] == "unsteady" and each.figure.value > 0:
            left = f"{each.figure.value:.0f} points, whose samples lie far apart though nobody here took time from them"
            yield f"  unsteady: {left}; their figures are as wide"


def _swept(readings: list["Reading"], chosen: int | None) -> Iterator[str]:
    """Milliseconds of the layer and seconds of measuring by number of threads (PARK-48, 73)."""
    from helmsman.executor.profile.table_record import LAYER, PART

    took = {each.conditions["threads"]: each for each in readings if each.what == PART and "threads" in each.conditions}
    for each in readings:
        if each.what == LAYER:
            threads = each.conditions["threads"]
            cost = f", tried in {took[threads].figure.value:.1f} s" if threads in took else ""
            used = "  <- used" if threads == chosen else ""
            yield f"  host on {threads:>3} threads{_cell(each.figure.value)} ms a layer{cost}{used}"


def _turned(readings: list["Reading"]) -> Iterator[str]:
    """What the layout (batch, tokens, width) would add to Scores (PARK-15)."""
    from helmsman.executor.profile.table_record import OPERATION, RESHAPE

    scores = {
        each.device: each.figure.value
        for each in readings
        if each.what == OPERATION and each.conditions["op"] == "scores"
    }
    for each in readings:
        if each.what == RESHAPE:
            value, size = each.figure.value, each.conditions.get("bytes")
            rate = f", {float(size) / value / 1e9:.2f} GB/s" if size is not None else ""
            alone = each.conditions["link"] == "idle" and each.device in scores
            more = f", {value / scores[each.device]:+.0%} of scores" if alone else ""
            beside = f"link {each.conditions['link']}"
            yield f"  --reshape on {each.device}, {beside}: {1e3 * value:.4f} ms to turn the keys{rate}{more}"


def _parts(readings: list["Reading"]) -> str:
    """`: layers in memory 0.5 s, ...`; the sweep's threads have lines of their own."""
    from helmsman.executor.profile.table_record import PART

    parts = [
        f"{each.conditions['part']} {each.figure.value:.1f} s{_iterations(each)}"
        for each in readings
        if each.what == PART and "threads" not in each.conditions
    ]
    return f": {', '.join(parts)}" if parts else ""


def _iterations(part: "Reading") -> str:
    """The balancing is within the part before it."""
    iterations = part.conditions.get("iterations")
    return "" if iterations is None else f" of that, {iterations} iterations"
