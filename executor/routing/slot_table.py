"""Knows which expert is in which slot of a layer, and the copies that bring others."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from helmsman.executor._kernels import Event
from helmsman.executor.devices.parts import CopyEngine
from helmsman.executor.routing.slot_room import ABSENT, SlotRoom


class SlotEntry(NamedTuple):
    """An expert that gets a slot."""

    expert: int
    slot: int


@dataclass
class SlotTable:
    """The experts in the slots of a layer; `engine`: on which others come; `copied`: bytes of a pass so far; `behind`:
    seconds for which those were on their way that came behind the pass before.

    Copies are submitted when experts are admitted and leave when `start` says so. The threads that copy may share a
    core with the one that admits: begun at once, they would keep it from telling others what they are to compute."""

    room: SlotRoom
    engine: CopyEngine
    slot_of: dict[int, int] = field(default_factory=dict)
    copied: int = 0
    behind: float = 0.0
    _started: Event = field(default_factory=Event)
    _ended: int | None = None
    _copies: list[tuple[int, int, NDArray[np.float64]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._slots, self._late = self.room.tables()
        self.room.arrived.signal()

    def begin(self) -> None:
        """A pass begins, with all that has been copied in its place."""
        self.settle()
        self.behind = 0.0 if self._ended is None else self._seconds(slice(self._ended, None))
        self.copied, self._ended = 0, None
        self._copies.clear()

    def end(self) -> None:
        """A pass ends: what is copied from now on comes behind it."""
        self._ended = len(self._copies)

    def start(self) -> None:
        """Let the copies of admitted experts leave."""
        self._started.signal()

    def settle(self) -> None:
        """Wait for all that was admitted."""
        self.start()
        self.room.arrived.wait()

    def leave_spare(self) -> None:
        """Forget who is in spare slots: other layers use them."""
        own = self.room.rule.slots
        if self.room.count > own:
            self.slot_of = {expert: slot for expert, slot in self.slot_of.items() if slot < own}

    def clear(self) -> None:
        """Empty all slots."""
        self.settle()
        self.slot_of.clear()

    def admit(self, experts: Sequence[int], victims: Iterable[int]) -> tuple[int, ...]:
        """Submit copies of experts to free slots, then to those of `victims` in order; return those that found none."""
        if not experts:
            return ()
        free = sorted(set(range(self.room.count)) - set(self.slot_of.values()))
        leaving = iter(victims)
        admitted, left = list[SlotEntry](), list[int]()
        for expert in experts:
            slot = free.pop(0) if free else next((self.slot_of.pop(other) for other in leaving), None)
            if slot is None:
                left.append(expert)
            else:
                admitted.append(SlotEntry(expert, slot))
        self.slot_of.update(admitted)
        if admitted:
            self._copy(admitted)
        return tuple(left)

    def show(self, experts: Iterable[int], late: Collection[int] = (), *, on: bool = False) -> None:
        """Let stages compute `experts`, which are in slots, the `late` ones of them once they have come; `on`: others
        have been added to their sum already."""
        self._slots[:-1], self._slots[-1] = ABSENT, on
        self._late[:] = 0
        for expert in experts:
            self._slots[expert] = self.slot_of[expert]
        for expert in late:
            self._late[expert] = 1

    def shown(self, ids: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Return which of some experts stages compute."""
        return np.asarray(self._slots[ids] >= 0)

    def moved(self, operation: int) -> int:
        """Return the bytes of an operation's matrices that came in the pass."""
        return sum(size for number, size, _ in self._copies if number == operation)

    def seconds(self) -> float:
        """Return for how long matrices were on their way in the pass and behind the one before, copies one after the
        other."""
        return self.behind + self._seconds(slice(self._ended))

    def spans(self) -> NDArray[np.float64]:
        """f64 (operations, 2): seconds in which the matrices of each operation came, as if those of an operation had
        come together, up to the end of the last; zeros where none came."""
        result = np.zeros((len(self.room.matrices), 2))
        if not self._copies:
            return result
        lengths, end = result[:, 0].copy(), max(times[1] for *_, times in self._copies)
        for number, _, times in self._copies:
            lengths[number] += times[1] - times[0]
        result[:, 1] = end - lengths.sum() + np.cumsum(lengths)
        result[:, 0] = result[:, 1] - lengths
        return result

    def _seconds(self, copies: slice) -> float:
        return float(sum(times[1] - times[0] for *_, times in self._copies[copies]))

    def _copy(self, admitted: Sequence[SlotEntry]) -> None:
        """Submit the copies of all matrices, operation after operation."""
        self.settle()
        self.room.arrived.clear()
        self._started.clear()
        matrices, last = list(self.room.matrices.values()), len(admitted) - 1
        for number, operation in enumerate(matrices):
            for place, (expert, slot) in enumerate(admitted):
                buffer, offset, size = operation.source(expert)
                done = self.room.arrived if number == len(matrices) - 1 and place == last else None
                times = np.zeros(2)
                self._copies.append((number, size, times))
                wait = (self._started,)
                self.engine.submit(operation.slots[slot], 0, buffer, offset, size, wait, done, times.data)
        self.copied += len(admitted) * self.room.expert_bytes
