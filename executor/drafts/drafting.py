"""Greedy decoding with drafts: a pass verifies drafted tokens, and yields those that it would have chosen itself."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from helmsman.executor.drafts.drafter import Drafter, Hidden
from helmsman.executor.passes.generation import DraftCount, Generation, OnToken, Sequences, Tokens
from helmsman.scheduler.iteration import Iteration, Phase

Pass = Callable[[Iteration, Tokens], tuple[Hidden, Tokens]]
"""Runs a pass over (sequences, tokens) tokens; returns the states behind the last block, and int32 (sequences, tokens)
the token that the model chooses after each, of a prompt (sequences, 1) after the last."""


@dataclass
class DraftedRun:
    """One run over a prompt, whose sequences advance by as many tokens as all that are not over accept. `count`: drafts
    of a step; `take_back`: called where a step is to have had only so many tokens, as far as states go."""

    run: Pass
    drafter: Drafter
    count: int
    take_back: Callable[[int], None] = lambda _: None
    _iterations: list[Iteration] = field(default_factory=list)
    _chosen: list[Tokens] = field(default_factory=list)
    _drafted: int = 0
    _accepted: int = 0

    def generate(
        self,
        prompt: Tokens,
        passes: Sequence[Iteration],
        output_tokens: int,
        eos: Sequence[int],
        on_token: OnToken,
    ) -> Generation:
        """Return the continuation of `prompt` (sequences, tokens) by at most `output_tokens`; `passes`: over it."""
        moments, sequences = [time.monotonic()], Sequences(len(prompt), eos)
        for iteration in passes:
            latest = self._prompted(iteration, prompt)[:, None]
            moments.append(time.monotonic())
        self._add(latest, sequences, on_token)
        past = prompt.shape[1]
        while len(self._chosen) < output_tokens and sequences.running.any():
            most = min(self.count, output_tokens - len(self._chosen) - 1)
            made = self._step(latest, past, most, sequences.running)
            moments.append(time.monotonic())
            self._add(made, sequences, on_token)
            latest, past = made[:, -1:], past + made.shape[1]
        chosen, lengths = np.array(self._chosen, np.int32), tuple(sequences.lengths.tolist())
        drafts, times = DraftCount(self._drafted, self._accepted), np.array(moments)
        return Generation(tuple(self._iterations), chosen, times, (), lengths, len(passes), drafts=drafts)

    def _add(self, made: Tokens, sequences: Sequences, on_token: OnToken) -> None:
        """Add the (sequences, tokens) tokens of a step, until all sequences are over."""
        for token in made.T:
            if sequences.running.any():
                self._chosen.append(token)
                sequences.add(token, on_token)

    def _step(self, latest: Tokens, past: int, count: int, running: NDArray[np.bool_]) -> Tokens:
        """Return (sequences, tokens): accepted drafts, and the model's own choice after them."""
        drafts = self.drafter.propose(count) if count else latest[:, :0]
        rows = np.concatenate([latest, drafts], axis=1)
        hidden, choices = self._pass("decode", rows, past)
        agreed = int(np.cumprod(choices[running, :-1] == drafts[running], axis=1).sum(axis=1).min())
        self._drafted += count * int(running.sum())
        self._accepted += agreed * int(running.sum())
        made = choices[:, : agreed + 1]
        if agreed < count:
            self.take_back(agreed + 1)
        self.drafter.follow(made, hidden[:, : agreed + 1], past)
        return made

    def _prompted(self, iteration: Iteration, prompt: Tokens) -> Tokens:
        """Return (sequences,) what the model chooses behind a pass over the prompt, which the drafter follows."""
        first, last = iteration.past, iteration.context
        hidden, choices = self._pass(iteration.phase, prompt[:, first:last], first)
        following = np.concatenate([prompt[:, first + 1 : last + 1], choices[:, -1:]], axis=1)
        self.drafter.follow(following[:, : last - first], hidden, first)
        return choices[:, -1]

    def _pass(self, phase: Phase, rows: Tokens, past: int) -> tuple[Hidden, Tokens]:
        (sequences, tokens), number = rows.shape, len(self._iterations)
        outputs = tokens if phase == "decode" else 1
        iteration = Iteration(number, phase, sequences, tokens, past + tokens, outputs=outputs)
        self._iterations.append(iteration)
        return self.run(iteration, rows)
