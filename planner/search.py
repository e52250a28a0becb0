"""An exhaustive search that knows no model and no machine: rank candidates by an evaluation."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

CandidateT = TypeVar("CandidateT")


@dataclass(frozen=True, slots=True)
class Score:
    """The result of an evaluation: the value to minimise, and what is missing where (empty: feasible)."""

    value: float
    shortage: tuple[tuple[str, int], ...] = ()

    @property
    def feasible(self) -> bool:
        """Whether nothing is missing."""
        return not self.shortage


@dataclass(frozen=True, slots=True)
class Ranking(Generic[CandidateT]):
    """Feasible candidates, best first (ties: the earlier candidate), and the infeasible in given order."""

    feasible: tuple[tuple[CandidateT, Score], ...]
    infeasible: tuple[tuple[CandidateT, Score], ...]


def exhaustive(candidates: Iterable[CandidateT], evaluate: Callable[[CandidateT], Score]) -> Ranking[CandidateT]:
    """Evaluate every candidate once; O(n) evaluations, stable order."""
    scored = [(candidate, evaluate(candidate)) for candidate in candidates]
    feasible = sorted((pair for pair in scored if pair[1].feasible), key=lambda pair: pair[1].value)
    return Ranking(tuple(feasible), tuple(pair for pair in scored if not pair[1].feasible))
