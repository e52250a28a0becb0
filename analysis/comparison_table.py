"""A comparison of strategies for people: one table, the best first, and what the others lack."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from helmsman.analysis.front import front
from helmsman.schemas.comparison import Comparison, Planned, Point, Row
from helmsman.schemas.objective import Objective
from helmsman.schemas.predicted import Interval
from helmsman.schemas.units import format_bytes, format_number, format_seconds

BY: dict[Objective, str] = {"request": "request", "latency": "decode step", "ttft": "TTFT", "throughput": "request"}
"""The quantity that an objective makes least, in words."""

_HEAD = ("strategy", "TTFT", "step", "tokens/s", "[low .. high]", "request")
_MAX_MEMORIES = 2
"""Memories that have a column beside seconds; more of them have a table of their own."""


def table(comparison: Comparison, exact: bool = False) -> str:
    """Return the text that `helm-plan --strategy all` prints; `exact`: with the label of each plan."""
    parts = [list(_title(comparison)), list(_plans(comparison)), list(_unused(comparison.rows))]
    parts += [list(_labels(comparison.rows))] if exact else []
    parts += [list(_failures(comparison)), list(_ignored(comparison.rows))]
    parts.append(list(_front(comparison, exact)))
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def question_line(comparison: Comparison, batch: str | None = None) -> str:
    """Return the question in one line; `batch`: of several batches, which."""
    work = comparison.workload
    return (
        f"{comparison.model} on {comparison.hardware}: {work.prompt_tokens} + {work.output_tokens} tokens, "
        f"batch {batch or work.shape}, context {work.context}, {comparison.weights} weights, {comparison.kv} KV"
        f"{''.join(map(_option, comparison.options.items()))}"
    )


def _option(given: tuple[str, str | int | float | bool]) -> str:
    name, value = given
    return f", --{name.replace('_', '-')}" + ("" if value is True else f" {value}")


def short_label(strategy: str, label: str) -> str:
    """Return a plan's label without the strategy's name at its beginning."""
    return label.removeprefix(strategy).strip() or label


def cut(text: str, letters: int) -> str:
    """Return a text of at most so many letters, with an ellipsis for what does not fit."""
    return text if len(text) <= letters else f"{text[: letters - 1]}…"


def why_not(row: Row, names: Mapping[str, str]) -> str:
    """Say in a few words what a strategy lacks, by the `names` of memories, or why it has no plan."""
    if row.lacks:
        missing = ((names.get(memory, memory), format_bytes(size)) for memory, size in row.lacks.items())
        return ", ".join(f"{memory} lacks {size}" for memory, size in missing)
    return row.reason or ""


def aligned(rows: Sequence[Sequence[str]], left: int) -> Iterator[str]:
    """Yield lines of equal columns; the first `left` of them begin together, the others end together."""
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    for row in rows:
        cells = (cell.ljust(wide) if place < left else cell.rjust(wide) for place, (cell, wide) in _cells(row, widths))
        yield "  ".join(cells).rstrip()


def _cells(row: Sequence[str], widths: Sequence[int]) -> Iterator[tuple[int, tuple[str, int]]]:
    return enumerate(zip(row, widths, strict=True))


def _title(comparison: Comparison) -> Iterator[str]:
    yield question_line(comparison)
    first = ", plans that keep `slo` first" if "slo" in comparison.options else ""
    yield f"sorted by {BY[comparison.objective]}{first}"
    yield "TTFT: until every sequence has its first token; step: one more for each; request: until the last"
    if comparison.same_software:
        yield "placements alone are compared: engines have the launch times of this machine's record, not their own"


def _plans(comparison: Comparison) -> Iterator[str]:
    rows = [(row, row.planned) for row in comparison.rows if row.planned is not None]
    memories = _memories(row for _, row in rows)
    own = [] if len(memories) > _MAX_MEMORIES else memories
    lines = [(*_HEAD, *_named(comparison, own), "vs best")]
    lines += [(row.strategy, *_line(cells), *_sizes(cells, own), f"{row.relative:.2f}x") for row, cells in rows]
    if any(row.misses for row, _ in rows):
        misses = ["misses", *(" and ".join(row.misses) or "-" for row, _ in rows)]
        lines = [(*line, missed) for line, missed in zip(lines, misses, strict=True)]
    if rows:
        yield from aligned(lines, 1)
    if len(memories) > _MAX_MEMORIES:
        yield ""
        sizes = [(row.strategy, *_sizes(cells, memories)) for row, cells in rows]
        yield from aligned([("strategy", *_named(comparison, memories)), *sizes], 1)


def _named(comparison: Comparison, memories: Sequence[str]) -> tuple[str, ...]:
    """Return what people call memories."""
    return tuple(comparison.memory_names.get(memory, memory) for memory in memories)


def _sizes(planned: Planned, memories: Sequence[str]) -> tuple[str, ...]:
    """Return the bytes that a plan keeps in each memory."""
    used = {use.memory: use.used for use in planned.memory}
    return tuple(format_bytes(used.get(memory, 0)) for memory in memories)


def _labels(rows: Sequence[Row]) -> Iterator[str]:
    lines = [(row.strategy, short_label(row.strategy, row.planned.label)) for row in rows if row.planned is not None]
    if lines:
        yield from aligned([("strategy", "label of the plan"), *lines], 2)


def _memories(plans: Iterable[Planned]) -> tuple[str, ...]:
    """Memories in which any of the plans keeps something."""
    return tuple(dict.fromkeys(use.memory for plan in plans for use in plan.memory if use.used))


def _line(planned: Planned) -> tuple[str, ...]:
    speed = planned.speed
    times = (format_seconds(times.mid) for times in (speed.ttft, speed.step))
    rates = format_number(speed.decode_rate.mid, 4), _spread(speed.decode_rate)
    return (*times, *rates, format_seconds(speed.request.mid))


def _spread(rate: Interval) -> str:
    return f"[{format_number(rate.low, 3)} .. {format_number(rate.high, 3)}]"


def _failures(comparison: Comparison) -> Iterator[str]:
    without = [row for row in comparison.rows if row.planned is None]
    lines = [(row.strategy, row.verdict.replace("-", " "), why_not(row, comparison.memory_names)) for row in without]
    if lines:
        yield from aligned(lines, 3)


def _unused(rows: Sequence[Row]) -> Iterator[str]:
    for name, why in dict.fromkeys(item for row in rows for item in row.unused.items()):
        names = ", ".join(row.strategy for row in rows if row.unused.get(name) == why)
        yield f"not used     {name} by {names}: {why}"


def _ignored(rows: Sequence[Row]) -> Iterator[str]:
    for option in dict.fromkeys(option for row in rows for option in row.ignored):
        names = ", ".join(row.strategy for row in rows if option in row.ignored)
        yield f"--{option.replace('_', '-')} is no option of {names}"


def _front(comparison: Comparison, exact: bool) -> Iterator[str]:
    best = front(comparison.points)
    if not best:
        return
    many = sum(not point.misses for point in comparison.points)
    plans = f"{many} plans that keep `slo`" if "slo" in comparison.options else f"{many} plans"
    yield f"larger batches: no other of {plans} has a shorter request and more tokens/s than these"
    yield from aligned([("strategy", "batch", "request", "tokens/s", "[low .. high]", "step"), *map(_point, best)], 1)
    if exact:
        labels = [
            (point.strategy, str(point.batch), short_label(point.strategy, point.planned.label)) for point in best
        ]
        yield ""
        yield from aligned([("strategy", "batch", "label of the plan"), *labels], 3)


def _point(point: Point) -> tuple[str, ...]:
    speed = point.planned.speed
    rates = f"{speed.rate.mid:.4g}", _spread(speed.rate)
    return (
        point.strategy,
        str(point.batch),
        format_seconds(speed.request.mid),
        *rates,
        format_seconds(speed.step.mid),
    )
