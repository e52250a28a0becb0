"""The output of a run: the tokens, and when every task of every pass ran."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from helmsman.executor.passes.pass_times import PassTimes, Times
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.expert_cache import ExpertCacheCounts

Tokens = NDArray[np.int32]
Choose = Callable[[NDArray[np.float32]], Tokens]
"""The (sequences,) next tokens of f32 (sequences, vocab) logits."""
OnToken = Callable[[Tokens], NDArray[np.bool_] | None]
"""Given the (sequences,) tokens of a pass, which sequences end with them; None when nobody looks."""


@dataclass(frozen=True)
class DraftCount:
    """Tokens that were drafted, of all sequences that were not over, and those of them that the model chose itself."""

    drafted: int
    accepted: int


@dataclass(frozen=True)
class Generation:
    """`chosen`: int32 (tokens, sequences), of the last pass over the prompt and every decode step; of each sequence its
    first `lengths` count. `prompt_passes`: over the prompt, the last of which makes the first token; `drafts`: what
    became of them, where any were made.

    `moments`: seconds of CLOCK_MONOTONIC, start and end of each pass; `expert_cache`: what slots for experts did."""

    iterations: tuple[Iteration, ...]
    chosen: NDArray[np.int32]
    moments: Times
    recorded: tuple[PassTimes, ...]
    lengths: tuple[int, ...]
    prompt_passes: int
    expert_cache: tuple[ExpertCacheCounts, ...] = ()
    drafts: DraftCount | None = None

    @property
    def tokens(self) -> tuple[tuple[int, ...], ...]:
        """The tokens of every sequence, up to and with the one that ended it."""
        return tuple(
            tuple(sequence[:length]) for sequence, length in zip(self.chosen.T.tolist(), self.lengths, strict=True)
        )

    @property
    def ttft_s(self) -> float:
        """Seconds from the start to the first token."""
        return float(self.moments[self.prompt_passes] - self.moments[0])

    @property
    def tpot_s(self) -> float | None:
        """Mean seconds per token after the first; None when there is only one."""
        steps = len(self.chosen) - 1
        return float(self.moments[-1] - self.moments[self.prompt_passes]) / steps if steps else None

    @property
    def tokens_per_second(self) -> float | None:
        """Decoded tokens per second, all sequences together; None without a decode step, or one that the clock saw."""
        return self.chosen.shape[1] / self.tpot_s if self.tpot_s else None

    @property
    def overhead_s(self) -> Times:
        """Seconds of every pass in which no task ran, (passes,)."""
        outside = np.diff(self.moments)
        for record in self.recorded:
            outside[record.passes] -= record.busy_s()
        return outside


class Sequences:
    """Counts the tokens that a run makes for every sequence, until a sequence ends.

    `lengths`: int64 (sequences,), tokens made so far; `running`: bool (sequences,), whether a sequence goes on."""

    def __init__(self, count: int, eos: Sequence[int]) -> None:
        self._eos = np.array(eos, np.int32)
        self.lengths, self.running = np.zeros(count, np.int64), np.ones(count, bool)

    def add(self, chosen: Tokens, on_token: OnToken) -> None:
        """Add one more token (sequences,), with which some may end."""
        self.lengths += self.running
        ended = on_token(chosen)
        self.running &= ~(chosen[:, None] == self._eos).any(axis=1)
        if ended is not None:
            self.running &= ~ended


class Progress:
    """A run so far: its `iterations` pass by pass, until every sequence has ended."""

    def __init__(self, iterations: tuple[Iteration, ...], sequences: int, eos: Sequence[int]) -> None:
        self._iterations = iterations
        self.prompt_passes = max(1, sum(iteration.phase == "prefill" for iteration in iterations))
        self._chosen = np.zeros((len(iterations), sequences), np.int32)
        self._sequences = Sequences(sequences, eos)
        self._moments = np.zeros(len(iterations) + 1)
        self._moments[0] = time.monotonic()
        self._passes = 0

    def remaining(self) -> Iterator[Iteration]:
        """The iterations to come; each is over when its choice is added."""
        while self._passes < len(self._iterations) and self._sequences.running.any():
            yield self._iterations[self._passes]

    @property
    def makes_tokens(self) -> bool:
        """Whether the pass under way is the last of the prompt, or a decode step."""
        return self._passes + 1 >= self.prompt_passes

    def add(self, chosen: Tokens, on_token: OnToken) -> None:
        """The end of a pass, and what it has chosen."""
        making = self.makes_tokens
        self._chosen[self._passes] = chosen
        self._passes += 1
        self._moments[self._passes] = time.monotonic()
        if making:
            self._sequences.add(chosen, on_token)

    def generation(self, recorded: tuple[PassTimes, ...]) -> Generation:
        """Return the output so far."""
        made, lengths = self._chosen[self.prompt_passes - 1 : self._passes], tuple(self._sequences.lengths.tolist())
        moments = self._moments[: self._passes + 1]
        return Generation(self._iterations[: self._passes], made, moments, recorded, lengths, self.prompt_passes)
