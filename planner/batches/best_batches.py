"""The batch and the number of batches with the most tokens/s: a search over divisions that knows no plan.

Every division is asked about at most once. One is left out where a smaller one proves it slow: no memory reads fewer
bytes and no device does less for more sequences, so what takes at least t seconds for few takes as long for more."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf, isqrt
from typing import NamedTuple

from helmsman.schemas.plan import Considered

MOST_BATCH = 1 << 16
"""The number of sequences of a batch that are tried at most."""

MOST_BATCHES = 16
"""The number of batches that are tried at most."""

_LEAST_QUOTIENT = 1.1
"""The quotient of neighbouring batches from which on one between them is tried."""


class BatchDivision(NamedTuple):
    """`batches` batches of `batch` sequences."""

    batches: int
    batch: int

    @property
    def sequences(self) -> int:
        """All together."""
        return self.batch * self.batches


@dataclass(frozen=True, slots=True)
class DividedPlan:
    """The plan of a division: its output tokens/s over the whole request, the seconds that no plan for as many
    sequences beats, and whether batches only take turns, so that more of them are neither faster nor slower."""

    rate: float
    least: float
    turns: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """A division has no plan; `most`: the largest batch that would have one, where the refusal says it."""

    most: int | None = None


@dataclass
class BestBatches:
    """The search. `tokens`: outputs of one sequence; `batch`, `batches`: what is asked for, or None to choose it.

    `ask` answers for a division; what has no plan must have none for more sequences per batch, or more batches."""

    ask: Callable[[BatchDivision], DividedPlan | Refusal]
    tokens: int
    batch: int | None = None
    batches: int | None = None
    answers: dict[BatchDivision, DividedPlan | Refusal] = field(default_factory=dict)
    left_out: dict[BatchDivision, float] = field(default_factory=dict)

    def best(self) -> BatchDivision | None:
        """Return the fastest division with a plan; those `left_out` are not faster. None where nothing has a plan.

        They are powers of two up to the most that have a plan, those, and batches between the best and its neighbours
        until they are near."""
        if isinstance(self._answer(BatchDivision(self.batches or 1, self.batch or 1)), Refusal):
            return None
        for division in sorted(self._grid(), key=lambda division: (-division.sequences, division)):
            self._try(division)
        while fresh := [
            division for division in self._between() if division not in self.answers and division not in self.left_out
        ]:
            for division in fresh:
                self._try(division)
        return self._fastest

    def at_most(self, division: BatchDivision) -> float:
        """Tokens/s that no plan for a division exceeds, by the bounds of smaller ones."""
        least = max((answer.least for smaller, answer in self._plans if _within(smaller, division)), default=0.0)
        return division.sequences * self.tokens / least if least else inf

    def considered(self) -> tuple[Considered, ...]:
        """Return what was asked about and left out, and the smallest divisions without a plan."""
        answers = [
            Considered(**division._asdict(), verdict="planned", rate=answer.rate) for division, answer in self._plans
        ]
        answers += [
            Considered(**division._asdict(), verdict="left-out", rate=rate) for division, rate in self.left_out.items()
        ]
        answers += [Considered(**division._asdict(), verdict="no-plan") for division in self.none_from()]
        return tuple(sorted(answers, key=lambda division: (division.batches, division.batch)))

    def none_from(self) -> list[BatchDivision]:
        """The smallest divisions that have no plan."""
        refused = {
            division if answer.most is None else BatchDivision(division.batches, min(division.batch, answer.most + 1))
            for division, answer in self.answers.items()
            if isinstance(answer, Refusal)
        }
        return sorted(
            division for division in refused if not any(o != division and _within(o, division) for o in refused)
        )

    @property
    def _plans(self) -> list[tuple[BatchDivision, DividedPlan]]:
        return [(division, answer) for division, answer in self.answers.items() if isinstance(answer, DividedPlan)]

    @property
    def _fastest(self) -> BatchDivision:
        """Of those asked about, the smallest of equals."""
        return min(self._plans, key=lambda pair: (-pair[1].rate, pair[0].sequences, pair[0]))[0]

    def _answer(self, division: BatchDivision) -> DividedPlan | Refusal:
        if division not in self.answers:
            hopeless = any(_within(refused, division) for refused in self.none_from())
            self.answers[division] = Refusal() if hopeless else self.ask(division)
        return self.answers[division]

    def _try(self, division: BatchDivision) -> None:
        """Ask about a division, or leave it out."""
        fastest = max(answer.rate for _, answer in self._plans)
        if division not in self.answers and self.at_most(division) <= fastest:
            self.left_out[division] = self.at_most(division)
        else:
            self._answer(division)

    def _grid(self) -> Iterator[BatchDivision]:
        """Divisions into ever more batches, as long as more of them have plans and do not only take turns."""
        numbers = [1 << power for power in range(MOST_BATCHES.bit_length())]
        top = MOST_BATCH
        for batches in numbers if self.batches is None else [self.batches]:
            sizes = self._sizes(batches, top) if self.batch is None else [self.batch]
            planned = sizes[: self._planned(batches, sizes)]
            if not planned or (batches > 1 and self._turns(BatchDivision(batches, planned[-1]))):
                return
            top = planned[-1]
            yield from (BatchDivision(batches, size) for size in planned)

    def _turns(self, division: BatchDivision) -> bool:
        answer = self._answer(division)
        return self.batches is None and isinstance(answer, DividedPlan) and answer.turns

    def _sizes(self, batches: int, top: int) -> list[int]:
        """Powers of two of sequences up to the most that may have a plan, which are `top` or fewer."""
        answer = self._answer(BatchDivision(batches, top))
        if isinstance(answer, Refusal) and answer.most is not None:
            top = answer.most
        return [*(1 << power for power in range(top.bit_length()) if 1 << power < top), *([top] if top else [])]

    def _planned(self, batches: int, sizes: list[int]) -> int:
        """How many of ascending `sizes` have plans; looks at the last before it halves."""
        low, high, middle = 0, len(sizes) + 1, len(sizes)
        while high - low > 1:
            if isinstance(self._answer(BatchDivision(batches, sizes[middle - 1])), DividedPlan):
                low = middle
            else:
                high = middle
            middle = (low + high) // 2
        return low

    def _between(self) -> Iterator[BatchDivision]:
        """Between the best and its neighbours, where they are not near: in sequences, or in batches of as many."""
        if self.batch is not None and self.batches is not None:
            return
        axis, best = int(self.batch is None), self._fastest
        line = sorted(
            {division[axis] for division in (*self.answers, *self.left_out) if division[1 - axis] == best[1 - axis]}
        )
        for low, high in pairwise(line):
            middle = max(low + 1, isqrt(low * high))
            if best[axis] in (low, high) and high / low > _LEAST_QUOTIENT and middle < high:
                yield best._replace(**{best._fields[axis]: middle})


def _within(one: BatchDivision, other: BatchDivision) -> bool:
    """Whether a division is part of another."""
    return one.batch <= other.batch and one.batches <= other.batches
