"""Prices a machine of a study, and a million tokens on it."""

from helmsman.hwdb.edits import AS_IT_IS
from helmsman.schemas.study import Study, StudyPrices
from helmsman.schemas.study_row import StudyRow
from helmsman.simulator.serving.slo import parse_slo

_YEAR_S = 365.25 * 86400.0
_KWH_J = 3.6e6
_MILLION = 1e6


def judged(study: Study, row: StudyRow) -> StudyRow:
    """Return a row with its price, its cost, and whether it keeps its SLO; what prices and the SLO are is no
    part of the questions that are kept."""
    prices = prices_named(study, row.prices)
    price = price_of(prices, row)
    return row.model_copy(
        update={"price": price, "cost": _cost(prices, row, price), "keeps_slo": keeps_slo(study, row)}
    )


def prices_named(study: Study, name: str) -> StudyPrices:
    """Return the prices of a study that have a name."""
    return next(prices for prices in study.prices if prices.name == name)


def price_of(prices: StudyPrices, row: StudyRow) -> float | None:
    """Return the price of a row's machine with its change; None where one of the two has none."""
    machine = prices.machines.get(row.machine)
    change = change_price(prices, row.change)
    return None if machine is None or change is None else machine + change


def change_price(prices: StudyPrices, change: str) -> float | None:
    """Return what a change costs: its own price, or those of its parts; None where one of them has none."""
    if change in prices.changes:
        return prices.changes[change]
    if change == AS_IT_IS:
        return 0.0
    parts = [prices.changes.get(part.strip()) for part in change.split(",")]
    return None if None in parts else sum(part for part in parts if part is not None)


def _cost(prices: StudyPrices, row: StudyRow, price: float | None) -> float | None:
    """Return what a million output tokens cost: the machine's price over its years, and the energy that it draws."""
    tokens = row.served_tokens or _tokens_alone(row)
    if price is None or not tokens:
        return None
    owning = price / (prices.years * _YEAR_S * prices.used)
    energy = prices.watts.get(row.machine, 0.0) * prices.energy / _KWH_J
    return _MILLION * (owning + energy) / tokens


def _tokens_alone(row: StudyRow) -> float | None:
    """Return output tokens a second of one batch after the other."""
    return None if row.request_s is None else row.batch * row.output_tokens / row.request_s


def keeps_slo(study: Study, row: StudyRow) -> bool | None:
    """Return whether a row keeps its SLO; None where there is none, or nothing to keep it."""
    if row.slo is None or row.status != "fits" or row.ttft_s is None or row.step_s is None:
        return None
    if study.serving is not None:
        return row.rate is not None and row.rate > 0.0
    slo, request = parse_slo(row.slo), row.request_s or 0.0
    step = row.step_s if row.output_tokens > 1 else 0.0
    limits = (
        (slo.ttft, row.ttft_s),
        (slo.tpot, step),
        (slo.e2e, request),
        (slo.per_token, request / row.output_tokens),
    )
    return all(limit is None or seconds <= limit for limit, seconds in limits)
