"""The moves of looked-up rows: those of a pass's tokens, and learned positions, to where they are added."""

from collections.abc import Iterator
from dataclasses import dataclass

from helmsman.executor._kernels import Buffer as HostBuffer
from helmsman.executor.devices.move_calls import Lookup, Move, Pieces
from helmsman.executor.devices.parts import of_kind
from helmsman.executor.devices.value_sizes import F32_BYTES
from helmsman.executor.homes.staging import Slot, Staging
from helmsman.executor.homes.store import WeightLoader
from helmsman.executor.passes.phase_pass import DeviceUse, PhasePass
from helmsman.executor.stages.seats import Seats
from helmsman.lowering.tensor import POSITIONS, Tensor
from helmsman.schemas.plan import Plan


@dataclass(frozen=True)
class TableMoves:
    """The moves of the tables of one pass."""

    plan: Plan
    phase_pass: PhasePass
    seats: Seats
    staging: Staging
    store: WeightLoader

    def moves(self, index: int) -> list[Lookup | Move]:
        """Return the moves of a transfer of the tables that live, are stored and leave as it says."""
        task, use = self.phase_pass.tasks[index], self.phase_pass.uses[self.phase_pass.user[index]]
        here = [
            (tensor, slot)
            for tensor, slot in self.staging.of(use)
            if (rule := self.store.rule(tensor)).memory == task.memories[0]
            and (rule.format, rule.path) == (task.format, task.path)
        ]
        return [move for tensor, slot in here for move in self._moves(tensor, slot, use, task.memories[0])]

    def _moves(self, tensor: Tensor, slot: Slot, use: DeviceUse, home: str) -> Iterator[Lookup | Move]:
        if tensor.name == POSITIONS:
            yield self._positions(slot, home)
        else:
            yield from self._rows(tensor, slot, use, home)

    def _rows(self, tensor: Tensor, slot: Slot, use: DeviceUse, home: str) -> Iterator[Lookup]:
        """Of every batch the rows of its tokens."""
        rows, columns = tensor.shape
        table, fmt = self.store.here(tensor, range(rows), home)
        seats = [seat for (device, _), seat in sorted(self.seats.items()) if device == use.device]
        for batch, seat in enumerate(seats):
            at = slot.ready.offset + batch * slot.ready.size // len(seats)
            yield Lookup(
                of_kind(table, HostBuffer),
                fmt,
                rows,
                columns,
                seat.tokens,
                self.plan.workload.batch,
                slot.ready.buffer,
                at,
            )

    def _positions(self, slot: Slot, home: str) -> Move:
        """The rows of the tokens' places, to the same places."""
        row = F32_BYTES * self.plan.model.hidden
        source = self.store.positions(home)
        return Move(source, 0, slot.ready.buffer, slot.ready.offset, Pieces(per_token=row, at_past=row))
