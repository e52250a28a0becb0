"""A study from its document to its report."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from helmsman.hwdb.interval_ends import uncertain
from helmsman.schemas.study import Study
from helmsman.schemas.study_report import StudyReport, Uncertainty
from helmsman.schemas.study_row import StudyRow
from helmsman.studies.answering.local import LocalEngine
from helmsman.studies.answering.run import Told, counted, rows_of
from helmsman.studies.answering.shards import Engine
from helmsman.studies.answering.store import Store
from helmsman.studies.questions.named_parts import Machines, machine_of
from helmsman.studies.questions.points import Grid, StudyPoint
from helmsman.studies.questions.read_study import study_of
from helmsman.studies.summary.answers import best_settings, cheapest, format_choices, front, upgrades
from helmsman.studies.summary.costs import judged
from helmsman.studies.summary.ranking import RowRanking, goodness, measure_of, rankings_of
from helmsman.studies.summary.sensitivity import ENDS, uncertainty, variations


def study(content: Study | Mapping[str, Any], store: str | Path | None = None, jobs: int = 1) -> StudyReport:
    """Return what a study answers.

    `content`: the document, or what its file holds; `store`: the folder in which answers are kept and looked for;
    `jobs`: the number of processes.

    >>> asked = {"models": "Qwen3-0.6B", "machines": "rtx4060-laptop", "strategies": "cpu-only", "sensitivity": 0}
    >>> [row.plan for row in study(asked).rows]
    ['cpu(30)']
    """
    document = content if isinstance(content, Study) else study_of(content)
    kept = None if store is None else Store(Path(store))
    return report_of(document, counted(document), LocalEngine(jobs), kept, lambda done, total: None)


def varied_questions(study: Study, grid: Grid) -> int:
    """Return the number of questions that the sensitivity of the best answers takes at most."""
    figures = 1 + max(len(uncertain(machine_of(machine))) for machine in grid.machines) if study.sensitivity else 0
    return len(grid.models) * grid.scenarios * study.sensitivity * len(ENDS) * figures


def report_of(
    study: Study, grid: Grid, engine: Engine, store: Store | None, told: Told, machines: Machines | None = None
) -> StudyReport:
    """Return what a study answers; `machines`: those that are known already. Raises what `rows_of` raises."""
    points = tuple(grid.points())
    rows = _judged_rows(study, points, engine, store, told, machines)
    rankings = rankings_of(study, rows)
    counts = Counter(row.status for row in rows)
    return StudyReport(
        study=study,
        measure=measure_of(study),
        counts=dict(sorted(counts.items())),
        scenarios=tuple(ranking.scenario for ranking in rankings),
        best=tuple(chain.from_iterable(map(best_settings, rankings))),
        cheapest=tuple(chain.from_iterable(map(cheapest, rankings))),
        formats=tuple(chain.from_iterable(map(format_choices, rankings))),
        upgrades=tuple(chain.from_iterable(map(upgrades, rankings))),
        sensitivity=_sensitivity(rankings, points, engine, store, told),
        front=tuple(chain.from_iterable(map(front, rankings))),
        rows=rows,
    )


def _judged_rows(
    study: Study,
    points: Sequence[StudyPoint],
    engine: Engine,
    store: Store | None,
    told: Told,
    machines: Machines | None = None,
) -> tuple[StudyRow, ...]:
    return tuple(judged(study, row) for row in rows_of(study, points, engine, store, told, machines))


def _sensitivity(
    rankings: Sequence[RowRanking], points: tuple[StudyPoint, ...], engine: Engine, store: Store | None, told: Told
) -> tuple[Uncertainty, ...]:
    """Ask the best answers again with uncertain figures at either end."""
    machines = Machines()
    variants = [(ranking, variation) for ranking in rankings for variation in variations(ranking, points, machines)]
    if not variants:
        return ()
    study, again = rankings[0].study, tuple(chain.from_iterable(variation.points for _, variation in variants))
    rows = _judged_rows(study, again, engine, store, told)
    good = [goodness(measure_of(study), row) for row in rows]
    return tuple(
        uncertainty(ranking, variation, (good[2 * place], good[2 * place + 1]))
        for place, (ranking, variation) in enumerate(variants)
    )
