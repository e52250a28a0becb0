"""Rows that two sides share, divided anywhere: tasks as if the border between the sides were no border of panels."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from helmsman.lowering.graph import Task


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
        one_piece = task.piece is None and task.home is None
        if task.rows is None or not one_piece or task.operation not in borders:
            yield task
            continue
        factor = borders[task.operation].factor(*task.rows)
        sizes = {name: round(getattr(task, name) * factor) for name in ("bytes", "flops", "activation_bytes")}
        yield task._replace(**sizes)
