"""A quantity per decode step, known at some steps, linear between them: sums and quantiles in closed form."""

from collections.abc import Iterator
from dataclasses import dataclass
from math import floor

EXACT_STEPS = 64
_SEGMENTS = 32
_BISECTIONS = 200


def chosen_steps(steps: int, past: int) -> tuple[int, ...]:
    """Which of the decode steps 1..`steps` to simulate when step i sees a context of `past` + i tokens.

    All of them when they are few; else the first, the last and 31 whose contexts grow geometrically."""
    if steps <= EXACT_STEPS:
        return tuple(range(1, steps + 1))
    ratio = (past + steps) / (past + 1)
    contexts = [(past + 1) * ratio ** (i / _SEGMENTS) for i in range(1, _SEGMENTS)]
    return tuple(sorted({1, steps, *(round(context) - past for context in contexts)}))


@dataclass(frozen=True, slots=True)
class StepCurve:
    """values[i] at step steps[i], steps strictly increasing from 1, at least one; linear between them."""

    steps: tuple[int, ...]
    values: tuple[float, ...]

    def total(self) -> float:
        """Return the sum over every step."""
        return sum(count * first + slope * (count * (count - 1) / 2) for count, first, slope in self._runs())

    def quantile(self, q: float) -> float:
        """Return the q-quantile over every step, linear between neighbouring ranks (numpy's default)."""
        position = q * (self.steps[-1] - 1)
        rank = floor(position)
        low = self._ranked(rank)
        return low + (position - rank) * (self._ranked(rank + 1) - low) if position > rank else low

    def _runs(self) -> Iterator[tuple[int, float, float]]:
        """(count, first value, slope) of the steps from each node up to the next; the last node alone."""
        for i in range(len(self.steps) - 1):
            count = self.steps[i + 1] - self.steps[i]
            yield count, self.values[i], (self.values[i + 1] - self.values[i]) / count
        yield 1, self.values[-1], 0.0

    def _ranked(self, rank: int) -> float:
        """Return the value that `rank` others do not exceed: exact when every step is a node, else by bisection."""
        if len(self.steps) == self.steps[-1]:
            return sorted(self.values)[rank]
        low, high = min(self.values), max(self.values)
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            if not low < middle < high:
                break
            low, high = (low, middle) if self._at_most(middle) > rank else (middle, high)
        return high

    def _at_most(self, limit: float) -> int:
        return sum(_count_at_most(limit, *run) for run in self._runs())


def _count_at_most(limit: float, count: int, first: float, slope: float) -> int:
    """How many of first, first + slope, ... (`count` of them) are <= limit."""
    if slope < 0.0:
        return _count_at_most(limit, count, first + slope * (count - 1), -slope)
    if first > limit:
        return 0
    return count if slope == 0.0 else min(count, floor((limit - first) / slope) + 1)
