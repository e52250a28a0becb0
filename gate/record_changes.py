"""Names the differences of two cases beside their measurements: of the plan, and of the numbers of a machine's record
that price it."""

from collections.abc import Iterator
from math import log

from helmsman.schemas.hardware import Hardware

_SHOWN = 5
"""The number of changed figures that are told."""
_SPREAD = ("p10", "p90", "samples", "disturbed")
"""Fields of a figure beside its value."""
_ABOUT = ("readings", "sources", "host", "notes")
"""Parts of a record that price nothing."""


def plan_change(before: str, now: str) -> str:
    """Return a line about another plan, by the labels of both."""
    return f"the plan is another, of the same label {now}" if before == now else f"the plan was {before}, is {now}"


def record_changes(before: Hardware, now: Hardware) -> list[str]:
    """Return a line for each figure that changed, by the place that it has in the record, the most changed first."""
    old, new = dict(_numbers(before.to_dict())), dict(_numbers(now.to_dict()))
    changed = [place for place in new if place in old and new[place] != old[place]]
    changed.sort(key=lambda place: _size(old[place], new[place]), reverse=True)
    lines = [_line(now.name, place, old[place], new[place]) for place in changed[:_SHOWN]]
    if len(changed) > _SHOWN:
        lines.append(f"record {now.name}: {len(changed) - _SHOWN} more figures changed")
    if others := len(new.keys() ^ old.keys()):
        lines.append(f"record {now.name}: {others} figures came or went")
    return lines


def _line(record: str, place: str, old: float, new: float) -> str:
    share = f" ({new / old - 1.0:+.1%})" if old else ""
    return f"record {record}: {place} was {old:g}, is {new:g}{share}"


def _size(old: float, new: float) -> float:
    """Return how many times a number changed, as a logarithm; a number that is or was 0 comes first."""
    return abs(log(new / old)) if old > 0.0 and new > 0.0 else float("inf")


def _numbers(content: object, place: tuple[str, ...] = ()) -> Iterator[tuple[str, float]]:
    """Yield (place, value) of every number; entries of a list go by their name, else by their number."""
    if isinstance(content, bool):
        return
    if isinstance(content, int | float):
        yield ".".join(part for part in place if part != "value"), float(content)
    elif isinstance(content, dict):
        for key, value in content.items():
            if key not in _SPREAD and not (not place and key in _ABOUT):
                yield from _numbers(value, (*place, str(key)))
    elif isinstance(content, list):
        for number, value in enumerate(content):
            name = value.get("name") if isinstance(value, dict) else None
            yield from _numbers(value, (*place, str(number if name is None else name)))
