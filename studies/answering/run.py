"""A study from its questions to all rows: what is known is taken from the store, the rest answered and kept."""

from collections.abc import Callable, Sequence

from helmsman.planner.registry import method
from helmsman.scheduler.policies import checked_options
from helmsman.schemas.errors import UsageError
from helmsman.schemas.study import Study
from helmsman.schemas.study_row import StudyRow
from helmsman.simulator.serving.slo import parse_slo
from helmsman.studies.answering.shards import Engine, shards_of
from helmsman.studies.answering.store import Store
from helmsman.studies.questions.named_parts import keyed
from helmsman.studies.questions.points import Grid, StudyPoint, grid_of

MOST_POINTS = 1_000_000
"""The number of questions that a study may have."""

Told = Callable[[int, int], None]
"""Hears of the numbers of points that have answers, and of all."""


def counted(study: Study) -> Grid:
    """Return the grid of a study whose names are known. Raises UsageError for a strategy, policy or SLO that there is
    not, for one without an SLO that is to serve, and beyond `MOST_POINTS`."""
    for strategy in study.strategies:
        method(strategy)
    for policy in study.serving.policies if study.serving is not None else ():
        checked_options(policy, {})
    if study.slo is not None:
        parse_slo(study.slo)
    elif study.serving is not None:
        raise UsageError("what is served is limited by an SLO", field="slo", remedy="write slo: ttft=2s,tpot=100ms")
    grid = grid_of(study)
    if len(grid) > MOST_POINTS:
        remedy = f"shorten its lists: at most {MOST_POINTS} questions"
        raise UsageError("too many questions", field="points", value=len(grid), remedy=remedy)
    return grid


def rows_of(
    study: Study, points: Sequence[StudyPoint], engine: Engine, store: Store | None, told: Told
) -> tuple[StudyRow, ...]:
    """Return the rows of points, in order: known ones from the store, others answered, and kept there as soon as their
    shard is done.

    Raises UsageError and BadInputError for models and machines that there are not, BadInputError for a damaged
    store."""
    keys = tuple(keyed(study, points))
    wanted = dict(keys)
    rows = {} if store is None else {key: row for key, row in store.rows().items() if key in wanted}
    missing = [(key, point) for key, point in wanted.items() if key not in rows]
    told(len(rows), len(wanted))
    for answered in engine(study, shards_of(study, missing)):
        if store is not None:
            store.add(answered)
        rows |= {row.key: row for row in answered}
        told(len(rows), len(wanted))
    return tuple(rows[key] for key, _ in keys)
