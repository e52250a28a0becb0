"""Whether the best answers are robust: asked again with uncertain figures of their machine at either end."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf

from helmsman.hwdb.edits import AS_IT_IS
from helmsman.hwdb.interval_ends import KERNELS, uncertain
from helmsman.planner.registry import ENGINES, RECOMMENDED
from helmsman.schemas.study_report import Uncertainty
from helmsman.studies.questions.named_parts import Machines
from helmsman.studies.questions.points import StudyPoint
from helmsman.studies.summary.ranking import RowRanking

ENDS = ("low", "high")

_OF_ENGINES = frozenset(ENGINES.values()) - {RECOMMENDED}
"""Strategies whose plans are priced with the constants of an engine's kernels, where those are known."""


@dataclass(frozen=True, slots=True)
class FigureVariation:
    """A best row, the figures that are varied, and the points that ask it again, by end."""

    row: int
    figures: str
    points: tuple[StudyPoint, ...]


def variations(ranking: RowRanking, points: tuple[StudyPoint, ...], machines: Machines) -> Iterator[FigureVariation]:
    """Yield the questions about the best rows of every model, as many as the study says; `points`: of the rows."""
    for row in _best_rows(ranking):
        of_engine = (KERNELS,) if ranking.rows[row].planned_by in _OF_ENGINES else ()
        for figures in (*uncertain(machines.machine(points[row])), *of_engine):
            yield FigureVariation(row, figures, tuple(_varied(points[row], figures, end) for end in ENDS))


def _best_rows(ranking: RowRanking) -> Iterator[int]:
    """Yield the best rows of every model, each of another machine or change."""
    chosen = ranking.best_by_place
    for model in dict.fromkeys(place[0] for place in chosen):
        rows = [row for place, row in chosen.items() if place[0] == model and row is not None]
        yield from sorted(rows, key=lambda row: -ranking.goodness(row))[: ranking.study.sensitivity]


def _varied(point: StudyPoint, figures: str, end: str) -> StudyPoint:
    before = "" if point.change == AS_IT_IS else f"{point.change},"
    return replace(point, change=f"{before}{figures}={end}")


def uncertainty(ranking: RowRanking, variation: FigureVariation, ends: tuple[float, float]) -> Uncertainty:
    """Return what a variation says; `ends`: how good the answer is at its low and high end."""
    row = ranking.rows[variation.row]
    others = [
        ranking.goodness(number)
        for (model, machine, _), number in ranking.best_by_place.items()
        if number is not None and model == row.model and machine != row.machine
    ]
    best = max(others, default=-inf)
    leads = ranking.goodness(variation.row) >= best
    return Uncertainty(
        scenario=ranking.number,
        model=row.model,
        machine=row.machine,
        change=row.change,
        figures=variation.figures,
        low=_measured(ranking, row.batch, ends[0]),
        high=_measured(ranking, row.batch, ends[1]),
        stays_best=min(ends) >= best if leads else None,
    )


def _measured(ranking: RowRanking, batch: int, goodness: float) -> float | None:
    if goodness == -inf:
        return None
    return batch / goodness if ranking.measure == "request_s" else goodness
