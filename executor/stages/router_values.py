"""Reads the output of a router from the workspace of a stage: the experts chosen for each row of a pass, and the
message about them to other devices."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from helmsman.executor.devices.parts import Region, Stage
from helmsman.executor.devices.stage_turns import Numbers, StageValues
from helmsman.executor.devices.value_sizes import INDEX_BYTES
from helmsman.executor.stages.expert_operations import CHOICE, MESSAGE


@dataclass(frozen=True)
class RouterValues:
    """Reads the choice and the message of the router of a block; `message`: None where the router sends none."""

    values: StageValues
    choice: Region
    message: Region | None

    @classmethod
    def of(cls, values: StageValues, stage: Stage, layer: int) -> Self | None:
        """Return the values of a block's router; None where the stage has no router there."""
        choice = region_of(stage, CHOICE, layer)
        return None if choice is None else cls(values, choice, region_of(stage, MESSAGE, layer))

    def chosen(self, rows: int) -> Numbers:
        """Return int32 (rows, chosen), the experts of some rows."""
        return self.values.read(self.choice, rows)[:, : self._count]

    def messages(self, rows: int) -> Numbers | None:
        """Return the messages of the first rows, as `tell` takes them; None where the router sends none."""
        return None if self.message is None else self.values.read(self.message, rows)

    def sent(self, messages: Numbers | None) -> Numbers | None:
        """Return, of the messages of some rows, int32 (rows, chosen): the experts that others are to compute."""
        return None if messages is None else messages[:, -2 * self._count : -self._count]

    def tell(self, messages: NDArray[np.int32] | None) -> None:
        """Write messages back, with what a look-up changed in them."""
        if self.message is not None and messages is not None:
            self.values.write(self.message, messages)

    @property
    def _count(self) -> int:
        return self.choice["row_bytes"] // INDEX_BYTES


def region_of(stage: Stage, name: str, layer: int) -> Region | None:
    """Return where a block leaves a value in the workspace of a stage; None where the stage has no such value."""
    regions = stage.regions()
    return regions.get(f"{layer}.{name}", regions.get(name))
