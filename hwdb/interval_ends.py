"""Machines with one kind of figure at an end of its interval, as `cuda.read=low` asks: is an answer robust?"""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from helmsman.hwdb.percentiles import OPPOSITE, End, duration_at, rate_at
from helmsman.schemas.errors import UsageError
from helmsman.schemas.figures import Figure
from helmsman.schemas.hardware import Device, Hardware

_TABLES = {
    "memories": ("bandwidth",),
    "devices": ("read", "compute", "efficiency", "launch", "overhead"),
    "links": ("bandwidth", "latency"),
}
"""The fields of a machine's rows that hold figures which predictions rest on."""
_ENDS: dict[str, End] = {"low": "low", "high": "high"}
_DURATIONS = frozenset({"launch", "overhead", "overheads", "prompt_overhead", "latency"})

KERNELS = "engine.kernels"
"""What the kernels of the engine that is planned for reach: figures of its constants, and of no machine's record, so
that machines stay as they are and whoever plans for the engine puts them to an end (`kernels_end`, `kernels_at`)."""

_OF_KERNELS = (("read", "compute", "efficiency", "elementwise"), ("overhead", "overheads", "prompt_overhead"))
"""Figures of a device that kernels reach: rates, and durations."""


def uncertain(hardware: Hardware) -> tuple[str, ...]:
    """Return the names, as `cuda.read`, of all figures of a machine that have a spread."""
    return tuple(
        f"{row.name}.{field}"
        for table, names in _TABLES.items()
        for row in getattr(hardware, table)
        for field in names
        if any(figure.p10 < figure.p90 for figure in _figures(getattr(row, field)))
    )


def is_figure(name: str) -> bool:
    """Whether an edit's name is that of a figure, of whatever machine."""
    if name == KERNELS:
        return True
    return name.rpartition(".")[2] in {field for names in _TABLES.values() for field in names} and "." in name


def kernels_end(change: str) -> End:
    """Return the end at which a machine's change has the kernels of an engine; `mid` where it says nothing of them.

    >>> kernels_end("vram=12GB,engine.kernels=low"), kernels_end("as it is")
    ('low', 'mid')
    """
    ends = [item.partition("=")[2].strip() for item in change.split(",") if item.partition("=")[0].strip() == KERNELS]
    return _ENDS[ends[-1]] if ends and ends[-1] in _ENDS else "mid"


def kernels_at(device: Device, end: End) -> Device:
    """Return a device as an engine drives it with what kernels reach at an end: `low`, the slowest of 5 %."""
    rates, durations = _OF_KERNELS
    ends = {**dict.fromkeys(rates, end), **dict.fromkeys(durations, OPPOSITE[end])}
    changes = {name: _at(getattr(device, name), name, at) for name, at in ends.items() if getattr(device, name)}
    return device.model_copy(update=changes)


def at_end(hardware: Hardware, name: str, end: str) -> Hardware:
    """Return the machine with the figures `name` at an `end`: their 5th percentile, `low`, or their 95th, `high`.

    Raises UsageError where the machine has no such figure, or the end is none."""
    owner, _, field = name.rpartition(".")
    if end not in _ENDS:
        raise UsageError(
            "not an end of an interval", field="changes", value=f"{name}={end}", remedy="write low or high"
        )
    if name == KERNELS:
        return hardware
    for table, names in _TABLES.items():
        rows = getattr(hardware, table)
        if field in names and any(row.name == owner for row in rows):
            changed = tuple(_row_at(row, field, _ENDS[end]) if row.name == owner else row for row in rows)
            return hardware.model_copy(update={table: changed})
    remedy = f"use one of {', '.join(uncertain(hardware))}"
    raise UsageError("this machine has no such figure", field="changes", value=name, remedy=remedy)


def _row_at(row: Any, field: str, end: End) -> Any:
    return row.model_copy(update={field: _at(getattr(row, field), field, end)})


def _at(content: Any, field: str, end: End) -> Any:
    """Return figures, or what holds some, at an end."""
    if isinstance(content, Figure):
        return _figure_at(content, field, end)
    if isinstance(content, tuple):
        return tuple(_at(entry, field, end) for entry in content)
    if isinstance(content, Mapping):
        return {key: _at(entry, field, end) for key, entry in content.items()}
    if isinstance(content, BaseModel):
        changes = {name: _at(getattr(content, name), field, end) for name in type(content).model_fields}
        return content.model_copy(update=changes)
    return content


def _figure_at(figure: Figure, field: str, end: End) -> Figure:
    if figure.value == 0.0:
        return figure
    value = duration_at(figure, end) if field in _DURATIONS else rate_at(figure, end)
    return figure.model_copy(update={"value": value, "p10": min(value, figure.p10), "p90": max(value, figure.p90)})


def _figures(content: Any) -> Iterator[Figure]:
    """Yield every figure within a field."""
    if isinstance(content, Figure):
        yield content
    elif isinstance(content, tuple):
        for entry in content:
            yield from _figures(entry)
    elif isinstance(content, BaseModel):
        for name in type(content).model_fields:
            yield from _figures(getattr(content, name))
