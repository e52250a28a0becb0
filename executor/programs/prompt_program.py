"""The passes over prompts of which every chunk goes from device to device: a program for every number of chunks."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from helmsman.executor.passes.pass_times import PassTimes
from helmsman.executor.programs.program import Program


class PromptProgram:
    """Programs that `make` makes of a number of chunks of `size` tokens, when a pass first needs them.

    `most`: chunks of the longest prompts; their program is made at once, so that what cannot be is refused."""

    def __init__(self, make: Callable[[int], Program], size: int, most: int) -> None:
        self._make, self._size = make, size
        self._made = {most: make(most)}
        self._latest = self._made[most]

    def run(self, tokens: int, past: int) -> None:
        """Every sequence advances by `tokens` on top of `past` cached ones."""
        chunks = -(-tokens // self._size)
        if chunks not in self._made:
            self._made[chunks] = self._make(chunks)
        self._latest = self._made[chunks]
        self._latest.run(tokens, past)

    def logits(self) -> NDArray[np.float32]:
        """f32 (sequences, vocab) of the latest pass."""
        return self._latest.logits()

    def record(self, number: int, tokens: int, past: int) -> None:
        """Keep the times of the latest pass as those of pass `number`."""
        self._latest.record(number, tokens, past)

    def take(self) -> tuple[PassTimes, ...]:
        """Return the times recorded since the last call."""
        return tuple(recorded for program in self._made.values() for recorded in program.take() if len(recorded.passes))
