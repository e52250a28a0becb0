"""What the product says of a published fact, and how far it may be off."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from benchmarks.papers.figure import Found

Value = float | str | None
"""A number, a word (`x`: it does not run; a plan's label), or nothing where ours does not fit."""
Kind = Literal["computed", "given", "at least", "at most"]
"""`computed` by the product; `given` by its records or catalogue; ours must be `at least`, or `at most`, what was
published."""

FAILS = frozenset({"x", "OOM"})
"""The papers' words for what does not run."""

EXACT = 0.02
"""Arithmetic that a paper prints with two or three digits."""
MODELLED = 0.20
"""Times and rates: a cost model against another's measurements."""
ROUGH = 0.30
"""Rows of which the paper has several measurements that differ by as much (E-HELM-13)."""
POINTS = 10.0
"""Percentage points, of facts that are percentages of something that was measured."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Our value of a fact, in its unit. `tolerance`: of the relative error, or in points where `points`."""

    ours: Value
    tolerance: float = MODELLED
    kind: Kind = "computed"
    points: bool = False
    doubt: str = ""

    def error(self, published: Value) -> float | None:
        """Ours over published, less one; of percentages the difference in points; None between words."""
        if isinstance(self.ours, str) or isinstance(published, str) or self.ours is None or published is None:
            return None
        if self.points:
            return self.ours - published
        return self.ours / published - 1 if published else self.ours

    def holds(self, published: Value) -> bool:
        """Whether ours is what was published, within the tolerance."""
        error = self.error(published)
        if error is None:
            return self.ours == published or {self.ours, published} <= FAILS
        low = -self.tolerance if self.kind != "at most" else -float("inf")
        high = self.tolerance if self.kind != "at least" else float("inf")
        return low <= error <= high


Answers = Mapping[str, Answer]
"""By the fact's id; a member of a list as `id.0`, `id.1`."""

Study = Callable[[], Answers]


def of_figure(found: Iterable[Found], tolerance: float = MODELLED, points: Iterable[str] = ()) -> dict[str, Answer]:
    """The values that a redrawn figure compares; `points`: the facts that are percentages."""
    shares = set(points)
    return {
        each.fact: Answer(each.ours, POINTS if each.fact in shares else tolerance, points=each.fact in shares)
        for each in found
    }
