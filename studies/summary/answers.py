"""Answers from the rows of a study: the best settings, the cheapest, formats, upgrades, and the front of cost and
latency."""

from collections.abc import Iterator
from functools import lru_cache
from math import inf

from helmsman import library
from helmsman.hwdb.edits import AS_IT_IS
from helmsman.planner.file_formats import true_bits
from helmsman.schemas.study_report import BestSetting, FormatChoice, Upgrade
from helmsman.schemas.study_row import StudyRow
from helmsman.studies.summary.costs import change_price, prices_named
from helmsman.studies.summary.ranking import RowRanking


def best_settings(ranking: RowRanking) -> tuple[BestSetting, ...]:
    """Return the best setting of every model on every machine, for each model the best machine first."""
    chosen = ranking.best_by_place
    order = sorted(chosen, key=lambda place: (place[0], -_goodness(ranking, chosen[place])))
    return tuple(
        BestSetting(
            scenario=ranking.number,
            model=place[0],
            machine=place[1],
            change=place[2],
            row=chosen[place],
            missing=None if chosen[place] is not None else _missing(ranking, ranking.by_place[place]),
        )
        for place in order
    )


def cheapest(ranking: RowRanking) -> tuple[int, ...]:
    """Return the row of every model with the least cost a token among those that keep the SLO."""
    return tuple(
        min(numbers, key=lambda number: _cost_and_seconds(ranking.rows[number]))
        for numbers in _priced(ranking).values()
    )


def front(ranking: RowRanking) -> tuple[int, ...]:
    """Return the rows that no other row of the same model beats in both cost and seconds of a request, for each model
    the cheapest first."""
    return tuple(number for numbers in _priced(ranking).values() for number in _unbeaten(ranking, numbers))


def _unbeaten(ranking: RowRanking, numbers: list[int]) -> Iterator[int]:
    least = inf
    for number in sorted(numbers, key=lambda number: _cost_and_seconds(ranking.rows[number])):
        seconds = _cost_and_seconds(ranking.rows[number])[1]
        if seconds < least:
            least = seconds
            yield number


def _cost_and_seconds(row: StudyRow) -> tuple[float, float]:
    assert row.cost is not None and row.request_s is not None, "of rows that fit and have a price"
    return row.cost, row.request_s


def _priced(ranking: RowRanking) -> dict[str, list[int]]:
    """Return the rows by model that have a cost and do not miss the SLO."""
    priced: dict[str, list[int]] = {}
    for number in ranking.members:
        row = ranking.rows[number]
        if row.cost is not None and row.keeps_slo is not False:
            priced.setdefault(row.model, []).append(number)
    return priced


def format_choices(ranking: RowRanking) -> tuple[FormatChoice, ...]:
    """Return the most precise weights that every machine has room and speed for, of the formats that were asked;
    `native` may be anything, and is left out."""
    choices = []
    for (model, machine, change), numbers in ranking.by_place.items():
        formats = {number: ranking.rows[number].format for number in numbers if ranking.goodness(number) > -inf}
        bits = {number: _bits(model, fmt) for number, fmt in formats.items() if fmt not in (None, "native")}
        row = ranking.best(number for number, precise in bits.items() if precise == max(bits.values()))
        fmt = None if row is None else formats[row]
        if row is not None and fmt is not None:
            choices.append(
                FormatChoice(scenario=ranking.number, model=model, machine=machine, change=change, format=fmt, row=row)
            )
    return tuple(choices)


@lru_cache(maxsize=1024)
def _bits(model: str, fmt: str | None) -> float:
    """Return bits of a parameter of a model in a format."""
    return true_bits(library.load_model(model), model, fmt)[1]


def upgrades(ranking: RowRanking) -> tuple[Upgrade, ...]:
    """Return every change beside the machine as it is, what is gained for the price first, else what gains most."""
    chosen = ranking.best_by_place
    listed = [
        _upgrade(ranking, (model, machine, change), row, chosen.get((model, machine, AS_IT_IS)))
        for (model, machine, change), row in chosen.items()
        if change != AS_IT_IS and row is not None and (model, machine, AS_IT_IS) in chosen
    ]
    return tuple(sorted(listed, key=lambda upgrade: (upgrade.model, upgrade.machine, *_worth(upgrade))))


def _worth(upgrade: Upgrade) -> tuple[float, float]:
    """Return what to sort changes by: those that make something possible, or gain for nothing, come first."""
    gain = inf if upgrade.times is None else upgrade.times
    free = upgrade.times is None or (upgrade.price == 0 and gain > 1)
    per_price = inf if free else -inf if upgrade.per_price is None else upgrade.per_price
    return -per_price, -gain


def _upgrade(ranking: RowRanking, place: tuple[str, str, str], row: int, before: int | None) -> Upgrade:
    model, machine, change = place
    now = None if before is None else ranking.goodness(before)
    times = ranking.goodness(row) / now if now else None
    price = change_price(prices_named(ranking.study, ranking.scenario.prices), change)
    per_price = (times - 1) / price if times is not None and price else None
    return Upgrade(
        scenario=ranking.number,
        model=model,
        machine=machine,
        change=change,
        times=times,
        price=price,
        per_price=per_price,
        row=row,
    )


def _goodness(ranking: RowRanking, number: int | None) -> float:
    return -inf if number is None else ranking.goodness(number)


def _missing(ranking: RowRanking, numbers: list[int]) -> str:
    """Return why a place has no answer: that what fits misses the SLO, or what the first row lacks."""
    rows = [ranking.rows[number] for number in numbers]
    fitting = [row for row in rows if row.status == "fits"]
    reason = next((row.missing for row in fitting or rows if row.missing is not None), None)
    return reason or f"misses {ranking.scenario.slo}"
