"""Are tokens that were served among others those that a request gets alone?

    python -m benchmarks.served_alone PLAN --checkpoint DIR gpu-only-answers.jsonl neo-answers.jsonl ...

Compares all requests of runs that benchmarks.served kept (`--out`); runs that gave a request the same tokens are
compared at once. It needs no quiet machine. Exit code 4 where tokens differ, or too many cannot be told."""

import argparse
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from helmsman.cli.documents import read_plan
from helmsman.cli.isa import select_from_environment
from helmsman.executor.engine import Engine
from helmsman.executor.system.machine import Machine
from helmsman.schemas.plan import Plan

TOLERANCE = 1e-4
"""Of two exact computations' logits, as a part of the largest (tests/executor/test_correctness.py)."""


UNDECIDED = 0.02
"""The largest share of positions at which the two likeliest tokens may be too close to tell (rule 8 of measuring)."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A prompt, and the tokens that were served."""

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]


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

    @property
    def holds(self) -> bool:
        """Whether no token differs, and few cannot be told."""
        return self.differ == 0 and self.undecided <= UNDECIDED * self.positions

    def __str__(self) -> str:
        within = len(self.margins) - self.differ
        counts = f"{self.differ} differ, {within} within rounding, {self.undecided} undecided"
        return f"{self.positions} compared: {counts}; largest margin {max(self.margins, default=0.0):.1e}"


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


def keep(answers: Iterable[Answer], path: Path) -> None:
    """A line of JSON for each."""
    lines = (json.dumps({"prompt": answer.prompt, "tokens": answer.tokens}) for answer in answers)
    path.write_text("".join(f"{line}\n" for line in lines))


def kept(path: Path) -> list[Answer]:
    """What `keep` wrote."""
    found = (json.loads(line) for line in path.read_text().splitlines())
    return [Answer(tuple(each["prompt"]), tuple(each["tokens"])) for each in found]


def main() -> int:
    """Compare all answers of all files; 4 where they do not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("answers", type=Path, nargs="+")
    args = parser.parse_args()
    select_from_environment()
    answers = [answer for path in args.answers for answer in kept(path)]
    different = list(dict.fromkeys(answers))
    found = agreement(read_plan(args.plan), args.checkpoint, different)
    print(f"{len(answers)} requests, {len(different)} different answers: {found}")
    return 0 if found.holds else 4


if __name__ == "__main__":
    sys.exit(main())
