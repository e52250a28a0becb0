"""The interface of the program of a phase, however its passes are executed."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from helmsman.executor.passes.pass_times import PassTimes


class PhaseProgram(Protocol):
    """The passes of one phase."""

    def run(self, tokens: int, past: int) -> None:
        """Every sequence advances by `tokens` on top of `past` cached ones."""

    def logits(self) -> NDArray[np.float32]:
        """f32 (sequences, vocab) of the latest pass."""

    def record(self, number: int, tokens: int, past: int) -> None:
        """Keep the times of the latest pass as those of pass `number`."""

    def take(self) -> tuple[PassTimes, ...]:
        """Return the times recorded since the last call, passes of the same tasks together."""
