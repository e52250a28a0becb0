"""The event core: a clock and a heap, nothing else; it knows neither tasks nor resources."""

from heapq import heappop, heappush
from typing import Generic, TypeVar

EventT = TypeVar("EventT")


class Engine(Generic[EventT]):
    """Virtual time in seconds. Events are plain values, ordered by (time, priority, serial).

    Scheduling and popping cost O(log n) of the pending events."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, int, EventT]] = []
        self._serial = 0

    def schedule(self, time: float, event: EventT, priority: int = 0) -> None:
        """Let `event` happen at `time`; a lower priority number comes first at equal times.

        Raises ValueError when `time` lies in the past."""
        if time < self.now:
            raise ValueError(f"an event at {time} s cannot be scheduled at {self.now} s")
        heappush(self._heap, (time, priority, self._serial, event))
        self._serial += 1

    def step(self) -> list[EventT]:
        """Advance the clock to the next time and return every event due then; empty when none is left."""
        if not self._heap:
            return []
        self.now = self._heap[0][0]
        due = []
        while self._heap and self._heap[0][0] == self.now:
            due.append(heappop(self._heap)[3])
        return due
