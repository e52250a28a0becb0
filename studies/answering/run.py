"""A study from its questions to all rows: what is known is taken from the store, the rest answered and kept."""

from collections.abc import Callable, Sequence

from helmsman.planner.options import read_options
from helmsman.planner.registry import engine_strategies, method
from helmsman.scheduler.policies import checked_options
from helmsman.schemas.errors import UsageError
from helmsman.schemas.near_names import did_you_mean
from helmsman.schemas.study import Study, StudyPrices, StudyServing
from helmsman.schemas.study_row import StudyRow
from helmsman.simulator.serving.requests.arrivals import parse_arrivals
from helmsman.simulator.serving.requests.closed_loop import parse_think
from helmsman.simulator.serving.requests.request_source import open_source
from helmsman.simulator.serving.slo import parse_slo
from helmsman.studies.answering.answer import question_columns
from helmsman.studies.answering.shards import Engine, shards_of
from helmsman.studies.answering.store import Store
from helmsman.studies.questions.named_parts import Machines, field_of_study, keyed, machine_name
from helmsman.studies.questions.points import Grid, StudyPoint, grid_of

MOST_POINTS = 1_000_000
"""The number of questions that a study may have."""

Told = Callable[[int, int], None]
"""Hears of the numbers of points that have answers, and of all."""


def counted(study: Study) -> Grid:
    """Return the grid of a study whose names are known. Raises UsageError for an engine, strategy, policy, SLO, request
    or time that there is not, for prices of what is not in it, and beyond `MOST_POINTS`."""
    for strategy in study.strategies:
        with field_of_study("strategies"):
            method(strategy)
    _check_options(study)
    for slo in study.slo:
        parse_slo(slo)
    if study.serving is not None:
        _check_serving(study, study.serving)
    grid = grid_of(study)
    if len(grid) > MOST_POINTS:
        remedy = f"shorten its lists: at most {MOST_POINTS} questions"
        raise UsageError("too many questions", field="points", value=len(grid), remedy=remedy)
    _check_prices(study, grid)
    return grid


def _check_serving(study: Study, serving: StudyServing) -> None:
    if not study.slo:
        raise UsageError("what is served is limited by an SLO", field="slo", remedy="write slo: ttft=2s,tpot=100ms")
    for policy in serving.policies:
        with field_of_study("serving.policies"):
            checked_options(policy, {})
    if serving.users and (serving.rate or not serving.think):
        remedy = "leave `rate` out" if serving.rate else "say how long users think (`think`)"
        raise UsageError("replicas for users who think", field="serving.users", value=serving.users[0], remedy=remedy)
    for think in serving.think:
        with field_of_study("serving.think"):
            parse_think(think)
    with field_of_study("serving.arrivals"):
        arrivals = None if serving.arrivals is None else parse_arrivals(serving.arrivals)
    for requests in serving.requests:
        with field_of_study("serving.requests"):
            open_source(requests, None, arrivals, limit=serving.limit)


def _check_options(study: Study) -> None:
    """Raise UsageError for options of strategies that the study does not have, and for such as there are not."""
    with field_of_study("engines"):
        known = [name for engine in study.engines or (None,) for name in engine_strategies(engine, study.strategies)]
    for strategy, options in study.options.items():
        if strategy not in known:
            remedy = f"options are those of the study's strategies: {did_you_mean(strategy, known)}"
            raise UsageError("not in the study", field="options", value=strategy, remedy=remedy)
        for name, entry in options.items():
            for value in entry if isinstance(entry, tuple) else (entry,):
                read_options(method(strategy).options, {name: value}, strategy)


def _check_prices(study: Study, grid: Grid) -> None:
    """Raise UsageError for prices of one name, and those of machines and changes that the study does not have."""
    if len(grid.prices) < len(study.prices):
        raise UsageError("several have one name", field="prices", remedy="give each a name of its own")
    for prices in study.prices:
        _check_priced(prices, grid)


def _check_priced(prices: StudyPrices, grid: Grid) -> None:
    machines = {machine_name(machine) for machine in grid.machines}
    parts = {part.strip() for change in grid.changes for part in (change, *change.split(","))}
    for field, named, known in (
        ("prices.machines", prices.machines, machines),
        ("prices.watts", prices.watts, machines),
        ("prices.changes", prices.changes, parts),
    ):
        unknown = next((name for name in named if name not in known), None)
        if unknown is not None:
            raise UsageError("not in the study", field=field, value=unknown, remedy=did_you_mean(unknown, known))


def rows_of(
    study: Study,
    points: Sequence[StudyPoint],
    engine: Engine,
    store: Store | None,
    told: Told,
    machines: Machines | None = None,
) -> tuple[StudyRow, ...]:
    """Return the rows of points, in order: known ones from the store, others answered, and kept there as soon as their
    shard is done, but for those that failed. `machines`: those that are known already.

    Raises UsageError and BadInputError for models and machines that there are not, BadInputError for a damaged store,
    UsageError where it cannot be written."""
    if store is not None:
        store.check()
    machines = Machines() if machines is None else machines
    keys = tuple(keyed(study, points, machines))
    wanted = dict(keys)
    rows = {} if store is None else {key: row for key, row in store.rows().items() if key in wanted}
    missing = [(key, point) for key, point in wanted.items() if key not in rows]
    told(len(rows), len(wanted))
    for answers in engine(study, shards_of(missing, machines)) if missing else ():
        if store is not None:
            store.add([row for row in answers if row.status != "failed"])
        rows |= {row.key: row for row in answers}
        told(len(rows), len(wanted))
    return tuple(rows[key].model_copy(update=question_columns(point)) for key, point in keys)
