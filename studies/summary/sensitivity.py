"""Whether the best answers are robust: asked again with uncertain figures of their machine at either end."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf

from helmsman.hwdb.edits import AS_IT_IS
from helmsman.hwdb.interval_ends import KERNELS, uncertain
from helmsman.planner.registry import ENGINES, RECOMMENDED, method
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.study_report import Uncertainty
from helmsman.studies.questions.named_parts import Machines
from helmsman.studies.questions.point_request import point_request
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
        names = (*uncertain(machines.machine(points[row])), *of_engine)
        for figures in _rested_on(points[row], names, machines):
            yield FigureVariation(row, figures, _ends_of(points[row], figures))


def _rested_on(point: StudyPoint, names: tuple[str, ...], machines: Machines) -> Iterator[str]:
    """Yield the figures, of those named, that the prediction of a point can rest on: of plans for an engine, which its
    software has in place of the record's, those that reach the machine as it drives it."""
    request = point_request(point, machines)
    driven = method(request.strategy).driven
    if driven is None:
        yield from names
        return
    usual = _unnamed(driven(request))
    for name in names:
        ends = (_unnamed(driven(point_request(varied, machines))) for varied in _ends_of(point, name))
        if any(end != usual for end in ends):
            yield name


def _unnamed(hardware: Hardware) -> Hardware:
    """Return a machine without its name and sources, which say that it was changed."""
    return hardware.model_copy(update={"name": "", "sources": {}})


def _best_rows(ranking: RowRanking) -> Iterator[int]:
    """Yield the best rows of every model, each of another machine or change."""
    chosen = ranking.best_by_place
    for model in dict.fromkeys(place[0] for place in chosen):
        rows = [row for place, row in chosen.items() if place[0] == model and row is not None]
        yield from sorted(rows, key=lambda row: -ranking.goodness(row))[: ranking.study.sensitivity]


def _ends_of(point: StudyPoint, figures: str) -> tuple[StudyPoint, ...]:
    """Return the points that ask again with figures at either end."""
    before = "" if point.change == AS_IT_IS else f"{point.change},"
    return tuple(replace(point, change=f"{before}{figures}={end}") for end in ENDS)


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
