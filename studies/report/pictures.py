"""Pictures of a study: machines side by side, cost against latency, and what the best answer depends on."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from helmsman.analysis.plots.picture import BLUE, GREEN, GREY, INK, ORANGE, caption, dress, dress_bars, new_figure
from helmsman.schemas.study_report import BestSetting, StudyReport, Uncertainty
from helmsman.schemas.study_row import StudyRow
from helmsman.studies.report.scenarios import prices_of
from helmsman.studies.report.words import MEASURES, machine_words, moving
from helmsman.studies.summary.ranking import scenario_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH = 10.0
_BAR = 0.34
"""Inches of a bar with its gap."""
_TOP, _BOTTOM, _NAMES = 0.8, 0.6, 3.6
"""Inches above, below and left of the bars."""
_MOST_BARS = 30
_BESIDE = 0.04
"""The share of the width that stays free on either side of bars that begin nowhere."""


def pictures(report: StudyReport) -> "Iterator[tuple[str, Figure]]":
    """Yield the titles and figures that a report of one scenario has something to draw for."""
    for model in dict.fromkeys(setting.model for setting in report.best):
        settings = [entry for entry in report.best if entry.model == model and entry.row is not None][:_MOST_BARS]
        if settings:
            yield f"Machines for {model}", _machines(report, model, settings)
    if len(report.front) > 1:
        yield "Cost against latency", _costs(report)
    entries = [entry for entry in moving(report) if entry.low is not None and entry.high is not None][:_MOST_BARS]
    if entries:
        yield "What the best answer depends on", _tornado(report, entries)


def _machines(report: StudyReport, model: str, settings: list[BestSetting]) -> "Figure":
    """Bars of the best setting on every machine, with whiskers where there is an interval."""
    figure, axes = _bars([machine_words(entry.machine, entry.change) for entry in settings])
    for place, entry in enumerate(settings):
        assert entry.row is not None, "those with an answer"
        row = report.rows[entry.row]
        value = float(getattr(row, report.measure))
        axes.barh(place, value, height=0.6, color=GREEN if place == 0 else BLUE, zorder=2)
        low, high = _ends(report, entry.row)
        if low is not None and high is not None:
            axes.errorbar(value, place, xerr=[[value - low], [high - value]], color=INK, linewidth=1.1, capsize=3)
    unit = ", s" if report.measure == "request_s" else ""
    dress_bars(axes, f"{MEASURES[report.measure]}{unit}")
    caption(figure, f"Machines for {model}", f"{report.study.name}: the best setting on each")
    return figure


def _ends(report: StudyReport, number: int) -> tuple[float | None, float | None]:
    row = report.rows[number]
    if report.measure == "request_s":
        return row.request_low_s, row.request_high_s
    return (row.rate_low, row.rate_high) if report.measure == "rate" else (row.users_low, row.users_high)


def _costs(report: StudyReport) -> "Figure":
    """Points of all rows with a cost, and the front as a line for every model."""
    figure = new_figure(_WIDTH, 6.0)
    axes = figure.add_axes((0.09, 0.1, 0.88, 0.76))
    priced = [row for row in report.rows if row.keeps_slo is not False and scenario_of(row) == report.scenarios[0]]
    axes.plot(*_places(priced), "o", color=GREY, markersize=3)
    for model in dict.fromkeys(report.rows[number].model for number in report.front):
        points = [report.rows[number] for number in report.front if report.rows[number].model == model]
        axes.plot(*_places(points), "o-", label=model)
    axes.set(xscale="log", yscale="log")
    axes.legend(frameon=False, fontsize=9)
    dress(axes, f"cost of a million tokens, {prices_of(report).currency}", "seconds of a request")
    caption(figure, "Cost against latency", "the line: settings that no other one beats in both")
    return figure


def _places(rows: Iterable[StudyRow]) -> tuple[list[float], list[float]]:
    """Return the costs and the seconds of those rows that have both."""
    places = [(row.cost, row.request_s) for row in rows if row.cost is not None and row.request_s is not None]
    return [cost for cost, _ in places], [seconds for _, seconds in places]


def _tornado(report: StudyReport, entries: list[Uncertainty]) -> "Figure":
    """Bars from the low to the high end of every figure, the longest first."""
    figure, axes = _bars([f"{entry.figures}, {entry.machine}" for entry in entries])
    for place, entry in enumerate(entries):
        assert entry.low is not None and entry.high is not None, "those with both ends"
        left, right = min(entry.low, entry.high), max(entry.low, entry.high)
        axes.barh(
            place, right - left, left=left, height=0.6, color=ORANGE if entry.stays_best is False else BLUE, zorder=2
        )
    unit = ", s" if report.measure == "request_s" else ""
    dress_bars(axes, f"{MEASURES[report.measure]}{unit}")
    ends = [end for entry in entries for end in (entry.low, entry.high) if end is not None]
    beside = _BESIDE * (max(ends) - min(ends))
    axes.set_xlim(min(ends) - beside, max(ends) + beside)
    caption(
        figure,
        "What the best answer depends on",
        "figures from their 5th to their 95th percentile; orange: another machine may be better",
    )
    return figure


def _bars(names: list[str]) -> "tuple[Figure, Axes]":
    """Return a figure for lying bars, the first at the top, with their names at the left."""
    height = _TOP + _BOTTOM + _BAR * len(names)
    figure = new_figure(_WIDTH, height)
    left = _NAMES / _WIDTH
    axes = figure.add_axes((left, _BOTTOM / height, 0.97 - left, _BAR * len(names) / height))
    axes.set_ylim(len(names) - 0.5, -0.5)
    for place, name in enumerate(names):
        axes.text(-0.01, place, name, fontsize=8.5, ha="right", va="center", transform=axes.get_yaxis_transform())
    return figure, axes
