"""Holds the state of a lowering, all earlier tasks that later ones may wait for, as a value that can be compared."""

from typing import NamedTuple, Self, TypeVar

from helmsman.lowering.activations import Value

KeyT = TypeVar("KeyT")

Numbers = tuple[int, ...]
"""Numbers of tasks."""


class RememberedValue(NamedTuple):
    """The fields of `activations.Value`."""

    size: int
    made: tuple[tuple[str, int, float], ...]
    at: tuple[tuple[str, Numbers], ...]
    parts: tuple[tuple[str, Numbers], ...]

    @classmethod
    def of(cls, value: Value) -> Self:
        """Return what a value holds."""
        return cls(value.size, tuple(value.made), tuple(value.at.items()), tuple(value.parts.items()))

    def moved(self, tasks: int) -> "RememberedValue":
        """Return the same of tasks that are as many places later."""
        made = tuple([(memory, task + tasks, share) for memory, task, share in self.made])
        return RememberedValue(self.size, made, _moved(self.at, tasks), _moved(self.parts, tasks))

    def value(self) -> Value:
        """Return the value again."""
        return Value(self.size, list(self.made), dict(self.at), dict(self.parts))


class Outlook(NamedTuple):
    """The fields of `lower.TaskBuilder` that tell of earlier tasks, and those of its parts.

    `values`: distinct ones; `names`: (batch, operation) of each, with its place among them; `launched`, `latest`: of
    `Fetches`; `readers`: of `PageMoves`."""

    values: tuple[RememberedValue, ...]
    names: tuple[tuple[tuple[int, str], int], ...]
    consumers: tuple[tuple[str, tuple[tuple[int, Numbers], ...]], ...]
    worked: tuple[tuple[tuple[int, int, str], Numbers], ...]
    closed: tuple[tuple[int, int], ...]
    opened: int
    stored: tuple[tuple[int, Numbers], ...]
    launched: int | None
    latest: tuple[tuple[str, int], ...]
    readers: tuple[tuple[str, Numbers], ...]

    def moved(self, tasks: int, units: int) -> "Outlook":
        """Return the same of tasks and stages that are as many places later."""
        return Outlook(
            values=tuple([value.moved(tasks) for value in self.values]),
            names=self.names,
            consumers=tuple(
                (memory, tuple((unit + units, _later(numbers, tasks)) for unit, numbers in by_unit))
                for memory, by_unit in self.consumers
            ),
            worked=tuple(
                ((unit + units, batch, device), _later(numbers, tasks))
                for (unit, batch, device), numbers in self.worked
            ),
            closed=tuple((unit + units, task + tasks) for unit, task in self.closed),
            opened=self.opened + tasks,
            stored=_moved(self.stored, tasks),
            launched=None if self.launched is None else self.launched + tasks,
            latest=tuple((link, task + tasks) for link, task in self.latest),
            readers=_moved(self.readers, tasks),
        )


def _later(numbers: Numbers, tasks: int) -> Numbers:
    return tuple([number + tasks for number in numbers])


def _moved(pairs: tuple[tuple[KeyT, Numbers], ...], tasks: int) -> tuple[tuple[KeyT, Numbers], ...]:
    return tuple([(key, _later(numbers, tasks)) for key, numbers in pairs])
