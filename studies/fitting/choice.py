"""The row to take of a model's formats, and the order in which a person with the machine would want models."""

from collections.abc import Iterable, Sequence
from math import inf

from helmsman.schemas.fit_report import FitRow


def best_rows(rows: Sequence[FitRow]) -> tuple[int, ...]:
    """Return the number of the row to take of every model and context: what reaches the floor first, the largest model
    first; then what fits and is slower, the fastest first; then what does not fit, the smallest first."""
    groups: dict[tuple[str, int], list[int]] = {}
    for number, row in enumerate(rows):
        groups.setdefault((row.model, row.context), []).append(number)
    chosen = [best_row(rows, numbers) for numbers in groups.values()]
    first: dict[str, tuple[float, ...]] = {}
    for number in chosen:
        model = rows[number].model
        first[model] = min(first.get(model, (inf,)), _rank(rows[number]))
    order = sorted(chosen, key=lambda number: (*first[rows[number].model], rows[number].model, rows[number].context))
    return tuple(order)


def best_row(rows: Sequence[FitRow], numbers: Iterable[int]) -> int:
    """Return the number of the row that loses least of those that reach the floor, ties by speed; a format without a
    published loss comes after all that have one, the most bits first. Where none is fast enough the fastest, where none
    fits the smallest."""
    numbers = list(numbers)
    fast = [number for number in numbers if rows[number].meets_floor]
    fitting = [number for number in numbers if rows[number].status == "fits"]
    if fast:
        return min(fast, key=lambda number: _precision(rows[number]))
    if fitting:
        return max(fitting, key=lambda number: rows[number].decode_rate or 0.0)
    return min(numbers, key=lambda number: rows[number].weight_bytes)


def _precision(row: FitRow) -> tuple[float, float, float]:
    unpublished = row.loss is None
    return (inf if row.loss is None else row.loss, -row.bits if unpublished else 0.0, -(row.decode_rate or 0.0))


def _rank(row: FitRow) -> tuple[float, ...]:
    if row.meets_floor:
        return 0, -row.parameters, -(row.decode_rate or 0.0)
    if row.status == "fits":
        return 1, -(row.decode_rate or 0.0), 0
    return 2, row.weight_bytes, 0
