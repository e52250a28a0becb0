"""A study's report in lines of a hundred columns."""

from collections.abc import Iterator, Sequence
from itertools import islice
from textwrap import wrap

from helmsman.schemas.study_report import BestSetting, StudyReport
from helmsman.studies.report.scenarios import parts_of, scenario_words
from helmsman.studies.report.words import (
    MEASURES,
    better,
    cost_words,
    count_words,
    machine_words,
    measured,
    measured_with_interval,
    moving,
    setting_words,
)

_WIDTH = 100
_SHOWN = 20
"""The number of machines, upgrades and figures that are shown for a model at most."""
_MOST_SCENARIOS = 10
"""The number of scenarios that are shown at most."""


def text(report: StudyReport) -> str:
    """Return what `helm-whatif` prints."""
    sections = [[f"{report.study.name}: {count_words(report)}"]]
    for part in islice(parts_of(report), _MOST_SCENARIOS):
        head = scenario_words(report, part.scenarios[0])
        sections += [[head, "-" * len(head)] if head else []]
        sections += [list(lines(part)) for lines in (_machines, _formats, _upgrades, _costs, _sensitivity)]
    if len(report.scenarios) > _MOST_SCENARIOS:
        sections += [
            [f"... and {len(report.scenarios) - _MOST_SCENARIOS} more circumstances: see --rows, --html or --json"]
        ]
    return "\n\n".join("\n".join(lines) for lines in sections if lines)


def _machines(report: StudyReport) -> Iterator[str]:
    for number, model in enumerate(dict.fromkeys(setting.model for setting in report.best)):
        if number:
            yield ""
        settings = [setting for setting in report.best if setting.model == model]
        head = (f"machines for {model}", MEASURES[report.measure], "tokens/s", *_replica_head(report), "setting")
        yield from _table(head, [_machine(report, setting) for setting in settings if setting.row is not None])
        yield from _experts(report, settings)
        yield from _reasons([setting for setting in settings if setting.row is None])


def _replica_head(report: StudyReport) -> tuple[str, ...]:
    scenario = report.scenarios[0]
    if scenario.target_users is not None:
        return (f"replicas for {scenario.target_users} users",)
    return () if scenario.target_rate is None else (f"replicas for {scenario.target_rate:g}/s",)


def _machine(report: StudyReport, setting: BestSetting) -> tuple[str, ...]:
    assert setting.row is not None, "of those with an answer"
    row = report.rows[setting.row]
    rate = "-" if row.decode_rate is None else f"{row.decode_rate:.3g}"
    replicas = ("-" if row.replicas is None else str(row.replicas),) if _replica_head(report) else ()
    name = machine_words(setting.machine, setting.change)
    return name, measured_with_interval(report.measure, row), rate, *replicas, setting_words(report, row)


def _experts(report: StudyReport, settings: Sequence[BestSetting]) -> Iterator[str]:
    """Yield where routed experts are on the machines that are shown."""
    for setting in [setting for setting in settings if setting.row is not None][:_SHOWN]:
        experts = None if setting.row is None else report.rows[setting.row].experts
        if experts is not None:
            line = f"experts on {machine_words(setting.machine, setting.change)}: {experts}"
            yield from wrap(line, _WIDTH, initial_indent="- ", subsequent_indent="  ")


def _reasons(settings: Sequence[BestSetting]) -> Iterator[str]:
    """Yield why some machines have no answer, and what would help."""
    for setting in settings[:_SHOWN]:
        reason = f"{machine_words(setting.machine, setting.change)}: {setting.missing}"
        yield from wrap(reason, _WIDTH, initial_indent="- ", subsequent_indent="  ")
    if len(settings) > _SHOWN:
        yield f"... and {len(settings) - _SHOWN} more without an answer"


def _formats(report: StudyReport) -> Iterator[str]:
    if len(report.study.formats) < 2:
        return
    rows = [
        (f"{choice.model} on {machine_words(choice.machine, choice.change)}", choice.format)
        for choice in report.formats
    ]
    yield from _table(("most precise weights", "format"), rows)


def _upgrades(report: StudyReport) -> Iterator[str]:
    if not report.upgrades:
        return
    if not better(report):
        yield "upgrades     none of the changes brings 1 %"
        return
    rows = [
        (
            f"{upgrade.model} on {upgrade.machine}",
            upgrade.change,
            "fits now" if upgrade.times is None else f"{upgrade.times:.2f}x",
            cost_words(report, upgrade.price),
        )
        for upgrade in better(report)
    ]
    yield from _table(("upgrades", "change", "as good", "price"), rows)


def _costs(report: StudyReport) -> Iterator[str]:
    if not report.front:
        return
    rows = [
        (
            f"{row.model} on {machine_words(row.machine, row.change)}",
            cost_words(report, row.cost),
            measured("request_s", row.request_s),
            "cheapest" if number in report.cheapest else "",
        )
        for number, row in ((number, report.rows[number]) for number in report.front)
    ]
    yield from _table(("cost against latency", "a million tokens", "request", ""), rows)


def _sensitivity(report: StudyReport) -> Iterator[str]:
    if not report.sensitivity:
        return
    if not moving(report):
        yield "robust       no uncertain figure changes the best answers by 1 %"
        return
    rows = [
        (
            f"{entry.model} on {machine_words(entry.machine, entry.change)}",
            entry.figures,
            f"{measured(report.measure, entry.low)} .. {measured(report.measure, entry.high)}",
            "*" if entry.stays_best is False else "",
        )
        for entry in moving(report)
    ]
    yield from _table(("what is uncertain", "figures", MEASURES[report.measure], ""), rows)
    if any(mark for *_, mark in rows[:_SHOWN]):
        yield "* another machine may be better there"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the first rows as lines of columns; what is beyond the width is cut, and the number of others told."""
    shown = rows[:_SHOWN]
    widths = [max(len(row[column]) for row in (head, *shown)) for column in range(len(head))]
    for row in (head, *shown):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        yield line if len(line) <= _WIDTH else f"{line[: _WIDTH - 3]}..."
    if len(rows) > _SHOWN:
        yield f"... and {len(rows) - _SHOWN} more"
