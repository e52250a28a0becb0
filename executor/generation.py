"""What a run yields: the tokens, and when every task of every pass ran."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from helmsman.executor.recorded import Recorded, Times
from helmsman.scheduler.iteration import Iteration


@dataclass(frozen=True)
class Generation:
    """`chosen`: int32 (tokens, sequences), of the last pass over the prompt and every decode step.

    `moments`: seconds of CLOCK_MONOTONIC, start and end of each pass."""

    iterations: tuple[Iteration, ...]
    chosen: NDArray[np.int32]
    moments: Times
    recorded: tuple[Recorded, ...]
    eos: tuple[int, ...] = ()

    @property
    def _prompt_passes(self) -> int:
        return len(self.iterations) - len(self.chosen) + 1

    @property
    def tokens(self) -> tuple[tuple[int, ...], ...]:
        """The tokens of every sequence, up to and with its end-of-sequence token."""
        return tuple(_until_end(sequence, self.eos) for sequence in self.chosen.T.tolist())

    @property
    def ttft_s(self) -> float:
        """Seconds from the start to the first token."""
        return float(self.moments[self._prompt_passes] - self.moments[0])

    @property
    def tpot_s(self) -> float | None:
        """Mean seconds per token after the first; None when there is only one."""
        steps = len(self.chosen) - 1
        return float(self.moments[-1] - self.moments[self._prompt_passes]) / steps if steps else None

    @property
    def tokens_per_second(self) -> float | None:
        """Decoded tokens per second, all sequences together; None when there is no decode step."""
        tpot = self.tpot_s
        return None if tpot is None else self.chosen.shape[1] / tpot

    @property
    def overhead_s(self) -> Times:
        """Seconds of every pass in which no task ran, (passes,)."""
        outside = np.diff(self.moments)
        for each in self.recorded:
            outside[each.passes] -= each.busy_s()
        return outside


def _until_end(sequence: Sequence[int], eos: tuple[int, ...]) -> tuple[int, ...]:
    ends = [place for place, token in enumerate(sequence) if token in eos]
    return tuple(sequence[: ends[0] + 1] if ends else sequence)
