"""Data that stops on its way: brought to a buffer of host memory first, from storage or to be page-locked."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from helmsman.executor.devices.base import DeviceMemory
from helmsman.executor.devices.parts import Buffer
from helmsman.executor.passes.phase_pass import PhasePass, carry_alike

STOPS = 2
"""Buffers to stop in: one is filled while the other is emptied."""


@dataclass(frozen=True, slots=True)
class Stop:
    """A buffer on the way, and what it is held for."""

    memory: str
    number: int
    owner: int

    @property
    def buffer(self) -> tuple[str, str, int]:
        """Return its name for hazards."""
        return "stop", self.memory, self.number


def stops_of(phase_pass: PhasePass) -> dict[int, Stop]:
    """By task, the stop that it fills or empties: both tasks of a chain have the same."""
    stops: dict[int, Stop] = {}
    for index, task in enumerate(phase_pass.tasks):
        before = [dep for dep in task.deps if task.kind == "transfer" and _leads(phase_pass, dep, index)]
        if before:
            number = len(stops) // 2 % STOPS
            memory = task.memories[0]
            stops[before[0]] = stops[index] = Stop(memory, number, index)
    return stops


def _leads(phase_pass: PhasePass, first: int, second: int) -> bool:
    """Whether the second of two tasks carries on what the first has brought."""
    one, other = phase_pass.tasks[first], phase_pass.tasks[second]
    if one.kind == "pin":
        return True
    return one.kind == "transfer" and carry_alike(one, other) and one.memories[1] == other.memories[0]


@dataclass(frozen=True)
class StopBuffers:
    """The buffers of all stops."""

    buffers: dict[tuple[str, int], Buffer]

    def at(self, stop: Stop) -> Buffer:
        """The buffer of a stop."""
        return self.buffers[stop.memory, stop.number]


@dataclass
class Stops:
    """The stops of a pass by task, and their buffers once they are allocated."""

    by_task: dict[int, Stop]
    rest: StopBuffers = field(default_factory=lambda: StopBuffers({}))

    def ends(self, phase_pass: PhasePass, index: int) -> tuple[str, str]:
        """Where the bytes of a transfer come from and go to in the end, stops left out."""
        stop = self.by_task.get(index)
        if stop is None:
            return phase_pass.tasks[index].memories[0], phase_pass.tasks[index].memories[1]
        first = next(task for task, other in self.by_task.items() if other == stop and task != stop.owner)
        return phase_pass.tasks[first].memories[0], phase_pass.tasks[stop.owner].memories[1]


def allocate_stops(sizes: Sequence[tuple[Stop, int]], memories: dict[str, DeviceMemory]) -> StopBuffers:
    """Every buffer as large as the largest of `sizes` (stop, bytes) that stops in it."""
    largest: dict[tuple[str, int], int] = {}
    for stop, size in sizes:
        key = stop.memory, stop.number
        largest[key] = max(largest.get(key, 0), size)
    return StopBuffers({key: memories[key[0]].alloc(size, "data on its way") for key, size in largest.items()})
