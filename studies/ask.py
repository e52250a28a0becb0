"""A study from its document to its report."""

from collections import Counter
from collections.abc import Sequence
from itertools import chain

from helmsman.schemas.study import Study
from helmsman.schemas.study_report import StudyReport, Uncertainty
from helmsman.schemas.study_row import StudyRow
from helmsman.studies.answering.run import Told, rows_of
from helmsman.studies.answering.shards import Engine
from helmsman.studies.answering.store import Store
from helmsman.studies.questions.named_parts import Machines
from helmsman.studies.questions.points import Grid, StudyPoint
from helmsman.studies.summary.answers import best_settings, cheapest, format_choices, front, upgrades
from helmsman.studies.summary.costs import judged
from helmsman.studies.summary.ranking import RowRanking
from helmsman.studies.summary.sensitivity import uncertainty, variations


def report_of(study: Study, grid: Grid, engine: Engine, store: Store | None, told: Told) -> StudyReport:
    """Return what a study answers. Raises what `rows_of` raises."""
    points = tuple(grid.points())
    ranking = RowRanking(study, _judged_rows(study, points, engine, store, told))
    counts = Counter(row.status for row in ranking.rows)
    return StudyReport(
        study=study,
        measure=ranking.measure,
        counts=dict(sorted(counts.items())),
        best=best_settings(ranking),
        cheapest=cheapest(ranking),
        formats=format_choices(ranking),
        upgrades=upgrades(ranking),
        sensitivity=_sensitivity(ranking, points, engine, store, told),
        front=front(ranking),
        rows=tuple(ranking.rows),
    )


def _judged_rows(
    study: Study, points: Sequence[StudyPoint], engine: Engine, store: Store | None, told: Told
) -> tuple[StudyRow, ...]:
    return tuple(judged(study, row) for row in rows_of(study, points, engine, store, told))


def _sensitivity(
    ranking: RowRanking, points: tuple[StudyPoint, ...], engine: Engine, store: Store | None, told: Told
) -> tuple[Uncertainty, ...]:
    """Ask the best answers again with uncertain figures at either end."""
    variants = tuple(variations(ranking, points, Machines()))
    if not variants:
        return ()
    again = tuple(chain.from_iterable(variation.points for variation in variants))
    varied = RowRanking(ranking.study, _judged_rows(ranking.study, again, engine, store, told))
    good = [varied.goodness(number) for number in range(len(again))]
    return tuple(
        uncertainty(ranking, variation, (good[2 * place], good[2 * place + 1]))
        for place, variation in enumerate(variants)
    )
