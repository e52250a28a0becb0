"""The rows of a value in the workspace of a stage, as numbers: what a router has chosen, what it tells others."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from helmsman.executor._kernels import Buffer as HostBuffer
from helmsman.executor.devices.memory import view
from helmsman.executor.devices.parts import Buffer, Region, Stage, of_kind
from helmsman.executor.devices.value_sizes import INDEX_BYTES


@dataclass(frozen=True)
class ValueRows:
    """Rows of `width` numbers each, from number `first` of a native workspace on."""

    values: NDArray[np.int32]
    first: int
    width: int

    @classmethod
    def of(cls, stage: Stage, workspace: Buffer, name: str, layer: int) -> Self | None:
        """Return those of a value that a block leaves; None where the stage has no such value."""
        region = region_of(stage, name, layer)
        if region is None:
            return None
        values = view(of_kind(workspace, HostBuffer), np.int32)
        return cls(values, region["offset"] // INDEX_BYTES, region["stride"] // INDEX_BYTES)

    def head(self, rows: int) -> NDArray[np.int32]:
        """Return the first of them, int32 (rows, width)."""
        return self.values[self.first : self.first + rows * self.width].reshape(rows, self.width)


def region_of(stage: Stage, name: str, layer: int) -> Region | None:
    """Return where a block leaves a value in the workspace of a stage; None where the stage has no such value."""
    regions = stage.regions()
    return regions.get(f"{layer}.{name}", regions.get(name))


def sent_experts(messages: NDArray[np.int32], chosen: int) -> NDArray[np.int32]:
    """Return, of the messages of some rows, int32 (rows, chosen): the experts that others are to compute."""
    return messages[:, -2 * chosen : -chosen]
