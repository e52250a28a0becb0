"""Names a study's numbers, and writes them for people."""

from math import inf

from helmsman.hwdb.edits import AS_IT_IS
from helmsman.schemas.ranges import is_range
from helmsman.schemas.study_report import Measure, StudyReport, Uncertainty, Upgrade
from helmsman.schemas.study_row import StudyRow
from helmsman.schemas.units import format_number, format_seconds
from helmsman.studies.report.scenarios import prices_of

_MATTERS = 1.01
"""The ratio from which a difference matters."""

MEASURES: dict[Measure, str] = {
    "users": "users within the SLO",
    "rate": "requests/s within the SLO",
    "request_s": "request",
}
"""The quantity by which answers are compared, in words."""


def measured(measure: Measure, value: float | None) -> str:
    """Write a value of a measure."""
    if value is None:
        return "-"
    return format_seconds(value) if measure == "request_s" else format_number(value, 3)


def measured_with_interval(measure: Measure, row: StudyRow) -> str:
    """Write the measure of a row with its interval, where it has one."""
    ends = {
        "users": (row.users_low, row.users_high),
        "rate": (row.rate_low, row.rate_high),
        "request_s": (row.request_low_s, row.request_high_s),
    }
    low, high = ends[measure]
    settled = {"users": row.users_settled, "rate": row.rate_settled, "request_s": None}[measure]
    value = measured(measure, getattr(row, measure)) + (" (not settled)" if settled is False else "")
    return value if low is None or high is None else f"{value} [{measured(measure, low)} .. {measured(measure, high)}]"


def machine_words(machine: str, change: str) -> str:
    """Write a machine with its change."""
    return machine if change == AS_IT_IS else f"{machine} with {change}"


def setting_words(report: StudyReport, row: StudyRow) -> str:
    """Write what a row's setting has that others of the study do not have: format, engine, strategy and its options,
    batch, policy; and whose plan was chosen where a strategy chooses."""
    study, policies = report.study, () if report.study.serving is None else report.study.serving.policies
    parts = (
        (study.formats, row.format or "default format"),
        (study.kv_formats, f"{row.kv_format} KV"),
        (study.engines, row.engine or ""),
        (study.strategies, row.strategy),
        (study.objectives, f"for {row.objective}"),
        (study.batches, f"batch {row.batch}"),
        (policies, row.policy or ""),
    )
    varied = [word for entries, word in parts if len(entries) > 1 or any(is_range(str(entry)) for entry in entries)]
    varied += [row.options] if row.options else []
    chosen = [] if row.planned_by in (None, row.strategy) else [f"by {row.planned_by}"]
    return ", ".join([*varied, *chosen])


def cost_words(report: StudyReport, value: float | None) -> str:
    """Write a cost or a price in the currency of a report of one scenario."""
    return "-" if value is None else f"{format_number(value, 3)} {prices_of(report).currency}"


def better(report: StudyReport) -> list[Upgrade]:
    """Return the changes that make a best answer at least 1 % better, or possible."""
    return [upgrade for upgrade in report.upgrades if upgrade.times is None or upgrade.times >= _MATTERS]


def moving(report: StudyReport) -> list[Uncertainty]:
    """Return what moves the best answers by 1 % or more, the most first."""
    entries = [entry for entry in report.sensitivity if span(entry) >= _MATTERS]
    return sorted(entries, key=span, reverse=True)


def span(entry: Uncertainty) -> float:
    """Return the ratio of an answer's ends; infinite where nothing fits at one of them."""
    if not entry.low or not entry.high:
        return inf
    return max(entry.low, entry.high) / min(entry.low, entry.high)


def count_words(report: StudyReport) -> str:
    """Write the number of questions, and what became of them."""
    named = {"fits": "fit", "does-not-fit": "do not fit", "does-not-apply": "do not apply", "failed": "failed"}
    parts = ", ".join(f"{count} {named[status]}" for status, count in report.counts.items())
    return f"{len(report.rows)} question{'' if len(report.rows) == 1 else 's'}: {parts}"
