"""Where a stage finds the matrices of its experts: in the memory of its device, or where they arrive in every pass."""

from collections.abc import Iterator
from dataclasses import dataclass

from helmsman.executor.devices.parts import Buffer
from helmsman.executor.homes.staging import Staging, rows_of
from helmsman.executor.homes.store import WeightLoader, place_of
from helmsman.executor.passes.phase_pass import DeviceUse
from helmsman.lowering.tensor import Tensor
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import StoredFormat


@dataclass(frozen=True)
class ExpertWeights:
    """The matrices of experts that a device of `memory` computes in a pass."""

    store: WeightLoader
    staging: Staging
    memory: str

    def matrices(self, use: DeviceUse, tensor: Tensor) -> tuple[list[Buffer | None], StoredFormat]:
        """Return the matrix of every expert, None of those that are computed elsewhere, and the format of all.

        Raises UsageError where it is not one."""
        weights, formats = list[Buffer | None]([None] * tensor.shape[0]), set[StoredFormat]()
        for rows in _runs(rows_of(use, tensor), self.coming(use, tensor)):
            weight, fmt = self._run(use, tensor, rows)
            size = weight.size // len(rows)
            weights[rows.start : rows.stop] = [weight.part(number * size, size) for number in range(len(rows))]
            formats.add(fmt)
        if len(formats) > 1:
            raise UsageError(
                f"the experts of {place_of(tensor)} that one device computes must have one format",
                field="residence",
                value=sorted(formats),
                remedy="give those that live there and those that come one format",
            )
        return weights, formats.pop()

    def coming(self, use: DeviceUse, tensor: Tensor) -> range:
        """Return the experts of a use that come in every pass; none, at its end, where all live on the device."""
        slot, end = self.staging.slot(use, tensor), rows_of(use, tensor).stop
        return range(end, end) if slot is None else slot.rows

    def biases(self, use: DeviceUse, tensor: Tensor) -> Buffer:
        """f32 (experts, rows): those of all experts, also where others are computed elsewhere."""
        slot = self.staging.slot(use, tensor)
        if slot is None:
            return self.store.vector(tensor, self.memory)
        return slot.ready.buffer.part(slot.ready.offset, slot.ready.size)

    def _run(self, use: DeviceUse, tensor: Tensor, rows: range) -> tuple[Buffer, StoredFormat]:
        slot = self.staging.slot(use, tensor)
        if slot is None or slot.rows != rows:
            return self.store.here(tensor, rows, self.memory)
        return slot.ready.buffer.part(slot.ready.offset, slot.ready.size), slot.format


def _runs(experts: range, coming: range) -> Iterator[range]:
    """Yield experts that follow each other where they are: those that come, those before and those after them."""
    parts = range(experts.start, coming.start), coming, range(coming.stop, experts.stop)
    return (part for part in parts if part)
