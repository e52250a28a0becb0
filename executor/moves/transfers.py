"""The moves of a pass, whatever they move."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from helmsman.executor.cache.kv import Caches
from helmsman.executor.devices.move_calls import ExpansionMove, Lookup, Move, Read, Turn
from helmsman.executor.devices.parts import Buffer
from helmsman.executor.homes.staging import Staging
from helmsman.executor.homes.storage import Storage
from helmsman.executor.homes.store import WeightLoader
from helmsman.executor.moves.cache_moves import CacheMoves
from helmsman.executor.moves.table_moves import TableMoves
from helmsman.executor.moves.value_moves import ValueMoves
from helmsman.executor.moves.weight_moves import WeightMoves
from helmsman.executor.passes.chains import Stop, Stops, stops_of
from helmsman.executor.passes.phase_pass import PhasePass, carries_cache
from helmsman.executor.stages.seats import Seats
from helmsman.lowering.dataflow import TOKEN
from helmsman.lowering.tensors import LOOKUPS
from helmsman.schemas.plan import Plan


@dataclass
class Transfers:
    """The moves of the tasks of one pass; `scratch`: a buffer in a memory to which routers tell what they chose."""

    plan: Plan
    phase_pass: PhasePass
    seats: Seats
    staging: Staging
    store: WeightLoader
    caches: Caches
    storage: Storage
    scratch: Callable[[str], Buffer]
    stops: Stops = field(init=False)

    def __post_init__(self) -> None:
        self.stops = Stops(stops_of(self.phase_pass))
        self._weights = WeightMoves(self.plan, self.phase_pass, self.staging, self.store, self.storage, self.stops)
        self._caches = CacheMoves(self.plan, self.phase_pass, self.caches, self.stops)
        self._tables = TableMoves(self.plan, self.phase_pass, self.seats, self.staging, self.store)
        self._values = ValueMoves(self.plan, self.phase_pass, self.seats)

    def stop_sizes(self) -> list[tuple[Stop, int]]:
        """Return the bytes that every stop must hold."""
        return [(stop, self._stop_size(index)) for index, stop in self.stops.by_task.items()]

    def moves(self, index: int) -> Sequence[Move | Lookup | Read]:
        """Return the moves of a transfer or of a copy to page-locked memory."""
        task = self.phase_pass.tasks[index]
        if task.payload == "weights":
            return (self._tables if task.operation in LOOKUPS else self._weights).moves(index)
        if carries_cache(task):
            return [*self._caches.moves(index)]
        if self.phase_pass.tells_choice(index):
            return [self._values.choice(task, self.scratch(task.memories[1]))]
        return [self._values.token(task) if task.operation == TOKEN else self._values.move(index)]

    def expansions(self, index: int) -> Sequence[ExpansionMove | Turn]:
        """Return the moves with which a task expands 4-bit groups, or turns."""
        weights = self.phase_pass.tasks[index].payload == "weights"
        return self._weights.expansions(index) if weights else self._caches.turns(index)

    def _stop_size(self, index: int) -> int:
        weights = self.phase_pass.tasks[index].payload == "weights"
        return self._weights.size(index) if weights else self._caches.size(index)
