"""The interface of what the host does between operations of a stage: in the turn of a device's queue it reads what they
have left, writes what the next ones read, and runs some of them."""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from helmsman.executor._kernels import Event
from helmsman.executor.devices.parts import Buffer, Region

Numbers = NDArray[np.int32]
"""(rows, width): rows of a value in a workspace, as numbers."""


class StageValues(Protocol):
    """The values that operations of a stage leave, for functions that are called when they have."""

    def read(self, region: Region, rows: int) -> Numbers:
        """Return rows of a value."""

    def write(self, region: Region, numbers: Numbers) -> None:
        """Change rows of a value to what `read` has returned of them, and was changed."""


class StageTurns(StageValues, Protocol):
    """The turns of a stage on a queue. All but `call` is for functions that are called in one."""

    def call(self, function: Callable[[], object], done: Event | None) -> None:
        """Submit a function, which is called when all before it is done; what it raises is the queue's error."""

    def run(self, hidden: Buffer | None, tokens: int, past: int, ops: range, chunk: range) -> None:
        """Run operations for the tokens `chunk` of each sequence of a pass; `hidden`: where all of its hidden states
        are, None: in the workspace."""
