"""Which experts of a PyTorch stage are in which slots, as the host says before a stage computes them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from helmsman.executor._kernels import Buffer as HostBuffer
from helmsman.executor._kernels import Event
from helmsman.executor.devices.memory import view
from helmsman.executor.devices.operations import ExpertsOperation
from helmsman.executor.devices.parts import of_kind


@dataclass(frozen=True)
class SlottedExperts:
    """`table`: int32 (experts + 1,), the slot of every expert that the stage computes, below 0 for others, then whether
    their sum goes on; `late`: int32 (experts,), not 0 for those that are there once `arrived` is signalled."""

    table: NDArray[np.int32]
    late: NDArray[np.int32]
    arrived: Event

    @property
    def goes_on(self) -> bool:
        """Whether others have been added to the sum already."""
        return bool(self.table[-1])

    def here(self, chosen: Iterable[int]) -> Iterator[tuple[int, int]]:
        """Yield those of some experts that are in slots, with their slots, once they are there."""
        for expert in chosen:
            slot = int(self.table[expert])
            if slot >= 0:
                if self.late[expert]:
                    self.arrived.wait()
                yield expert, slot


def slotted_of(op: ExpertsOperation) -> SlottedExperts | None:
    """Return the slots of an operation; None where its experts live on the device."""
    table, late, arrived = op.get("slots"), op.get("late"), op.get("arrived")
    if table is None or late is None or arrived is None:
        return None
    tables = view(of_kind(table, HostBuffer), np.int32), view(of_kind(late, HostBuffer), np.int32)
    return SlottedExperts(tables[0][: op["experts"] + 1], tables[1][: op["experts"]], arrived)
