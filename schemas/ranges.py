"""Lists of values as people write them: `1..64` doubles, `512..4096/512` goes in steps, `8..24GB/4GB` has a unit."""

import re
from collections.abc import Callable
from typing import TypeVar

from helmsman.schemas.errors import UsageError

MOST_VALUES = 10_000
"""The number of values that one range may stand for."""
_REMEDY = "write FIRST..LAST, which doubles, or FIRST..LAST/STEP, as in 8..24GB/4GB"
_ENDS = re.compile(r"^\s*(?P<first>[0-9][0-9.]*)\s*(?P<unit>[A-Za-z/]*)\s*\.\.\s*(?P<rest>.+)$")
_NUMBER = re.compile(r"^\s*[0-9][0-9.]*(?:[eE][+-]?[0-9]+)?\s*")

_STEP = re.compile(r"/\s*(?=[0-9])")
"""The slash before a step; that of `GB/s` is before none."""

ValueT = TypeVar("ValueT", int, float)


def is_range(text: str) -> bool:
    """Whether a text stands for several values."""
    return ".." in text


def values_of(text: str, parse: Callable[[str], ValueT], field: str) -> tuple[ValueT, ...]:
    """Return the values of a range, the first to the last; the last is among them even where no step leads there.

    `parse` reads one of its numbers with a unit; a first number or a step without one has the last one's. Raises
    UsageError for what is no range, and for one of more than `MOST_VALUES`."""
    match = _ENDS.match(text)
    if match is None:
        raise UsageError("not a range", field=field, value=text, remedy=_REMEDY)
    last_text, *steps = _STEP.split(match["rest"], maxsplit=1)
    unit = _NUMBER.sub("", last_text).strip()
    first = parse(match["first"] + (match["unit"] or unit))
    last, step = parse(last_text), parse(_with_unit(steps[0], unit)) if steps else None
    if not 0 < first <= last or (step is not None and not step > 0):
        raise UsageError("not a range from less to more", field=field, value=text, remedy=_REMEDY)
    return _doubled(first, last) if step is None else _stepped(first, last, step, text, field)


def _with_unit(number: str, unit: str) -> str:
    return number if _NUMBER.sub("", number).strip() else number.strip() + unit


def _doubled(first: ValueT, last: ValueT) -> tuple[ValueT, ...]:
    values = [first]
    while 2 * values[-1] < last:
        values.append(2 * values[-1])
    return _ending(values, last)


def _stepped(first: ValueT, last: ValueT, step: ValueT, text: str, field: str) -> tuple[ValueT, ...]:
    count = int((last - first) / step * (1 + 1e-12)) + 1
    if count > MOST_VALUES:
        raise UsageError(f"more than {MOST_VALUES} values", field=field, value=text, remedy="use a larger step")
    return _ending([first + number * step for number in range(count)], last)


def _ending(values: list[ValueT], last: ValueT) -> tuple[ValueT, ...]:
    """Return values that end with the last one."""
    if values[-1] != last:
        values.append(last)
    return tuple(values)
