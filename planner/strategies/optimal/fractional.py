"""Rows that two sides share, divided anywhere: tasks as if the border between the sides were no border of panels."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from helmsman.lowering.graph import Task

_RANGE = re.compile(r"\.([a-z0-9]+)(?:\.weights)?:(\d+)-(\d+)(?=[@#]|\.decompress|$)")


@dataclass(frozen=True, slots=True)
class Border:
    """Of `extent` rows of an operation the accelerator has the first `rows` in a plan, and a `share` of them here."""

    rows: int
    share: float
    extent: int

    def factor(self, start: int, stop: int) -> float:
        """How many times as many rows are in what a plan has from `start` to `stop`."""
        if (start, stop) == (0, self.rows):
            return self.share * self.extent / self.rows
        if (start, stop) == (self.rows, self.extent):
            return (1 - self.share) * self.extent / (self.extent - self.rows)
        return 1.0


def divided(tasks: Sequence[Task], borders: Mapping[str, Border]) -> tuple[Task, ...]:
    """The tasks of a block with the rows that each side has here; what crosses between operations stays as it is."""
    return tuple(_divided(tasks, borders))


def _divided(tasks: Sequence[Task], borders: Mapping[str, Border]) -> Iterator[Task]:
    for task in tasks:
        match = _RANGE.search(task.id)
        if match is None or match[1] not in borders:
            yield task
            continue
        factor = borders[match[1]].factor(int(match[2]), int(match[3]))
        sizes = {name: round(getattr(task, name) * factor) for name in ("bytes", "flops", "activation_bytes")}
        yield task._replace(**sizes)
