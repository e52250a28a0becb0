"""Are tokens that were served among others those that a request gets alone?"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from helmsman.executor.engine import Engine
from helmsman.executor.machine import Machine
from helmsman.schemas.plan import Plan

TOLERANCE = 1e-4
"""Of two exact computations' logits, as a part of the largest (tests/executor/test_correctness.py)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A prompt, and the tokens that were served."""

    prompt: list[int]
    tokens: list[int]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Of `positions`, those whose token is not the likeliest of a request served alone (`differ`), and those at which
    the two likeliest are closer than rounding (`undecided`). `margins`: of the former, over the largest logit."""

    positions: int
    undecided: int
    margins: tuple[float, ...]

    @property
    def differ(self) -> int:
        """Tokens that rounding does not explain."""
        return sum(margin >= 2 * TOLERANCE for margin in self.margins)


def agreement(plan: Plan, checkpoint: Path, answers: Iterable[Answer]) -> Agreement:
    """Every answer against the logits of its own tokens, teacher-forced, on an engine with no other sequence."""
    positions, undecided, margins = 0, 0, []
    with Engine.load(plan, checkpoint, Machine.this()) as engine:
        for answer in answers:
            tokens = np.array([[*answer.prompt, *answer.tokens[:-1]]], np.int32)
            logits = engine.logits(tokens, len(answer.prompt))[0]
            best, scale = np.sort(logits, axis=1)[:, -2:], np.abs(logits).max(axis=1)
            own = logits[np.arange(len(logits)), answer.tokens]
            positions += len(logits)
            undecided += int(((best[:, 1] - best[:, 0]) < 2 * TOLERANCE * scale).sum())
            margins += ((best[:, 1] - own) / scale)[own < best[:, 1]].tolist()
    return Agreement(positions, undecided, tuple(margins))
