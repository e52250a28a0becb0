"""A picture of a case's history: measured runs, the prediction and the simulation of each entry, figure by figure."""

from collections.abc import Sequence
from math import ceil
from statistics import median
from typing import TYPE_CHECKING

from helmsman.analysis.plots.picture import BLUE, GREEN, INK, ORANGE, RED, caption, dress, new_figure
from helmsman.gate.history import History, HistoryEntry
from helmsman.schemas.errors import BadInputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH = 10.0
_PANEL = 2.6
_TOP = 0.8
_BOTTOM = 0.25
_LEFT = 0.9
_RIGHT = 0.3
_NOT_OK = ("slower", "drift", "failed")
_ABOVE = 1.1
"""The height of a panel over that of its highest point."""
_MOST_DATES = 8
"""The number of days that are named below the lowest panel."""


def draw_history(name: str, history: History) -> "Figure":
    """Draw the entries of the machine that was measured last, the oldest at the left: points are runs, accepted entries
    have a ring, entries that were not ok a cross. Raises BadInputError for a history without entries."""
    if not history.entries:
        remedy = "measure the case first: helm-check suite SUITE"
        raise BadInputError("there is nothing to draw", file=str(history.folder), remedy=remedy)
    machine = history.entries[-1].info.machine
    entries = [entry for entry in history.entries if entry.info.machine == machine]
    figures = tuple(entries[-1].entry.samples)
    height = _TOP + _BOTTOM + _PANEL * len(figures)
    figure = new_figure(_WIDTH, height)
    for place, what in enumerate(figures):
        bottom = _BOTTOM + _PANEL * (len(figures) - 1 - place) + 0.25
        size = ((_WIDTH - _LEFT - _RIGHT) / _WIDTH, (_PANEL - 0.35) / height)
        _draw_panel(figure.add_axes((_LEFT / _WIDTH, bottom / height, *size)), entries, what)
    _mark_dates(figure.axes[-1], entries)
    caption(figure, f"history of {name}", f"{entries[-1].info.plan}, measured on {machine}")
    return figure


def _draw_panel(axes: "Axes", entries: Sequence[HistoryEntry], figure: str) -> None:
    having = [(place, entry) for place, entry in enumerate(entries) if figure in entry.entry.samples]
    for place, entry in having:
        samples = entry.entry.samples[figure]
        axes.plot([place] * len(samples), samples, ".", color=BLUE, alpha=0.35, markersize=4, zorder=2)
    places = [place for place, _ in having]
    middles = [median(entry.entry.samples[figure]) for _, entry in having]
    axes.plot(places, middles, "-o", color=BLUE, linewidth=1.4, markersize=4, label="measured", zorder=3)
    _draw_expected(axes, having, figure)
    points = [(place, y, entry) for (place, entry), y in zip(having, middles, strict=True)]
    _mark(axes, "accepted", [(place, y) for place, y, entry in points if entry.accepted])
    _mark(axes, "not ok", [(place, y) for place, y, entry in points if entry.info.verdict in _NOT_OK])
    dress(axes, "", f"{figure}, s")
    axes.set_ylim(0.0, _ABOVE * axes.get_ylim()[1])
    axes.set_xlim(-0.5, len(entries) - 0.5)
    axes.set_xticks([])
    axes.legend(fontsize=8, frameon=False, loc="lower left", ncols=5)


def _draw_expected(axes: "Axes", having: Sequence[tuple[int, HistoryEntry]], figure: str) -> None:
    for label, colour, style in (("predicted", ORANGE, "--"), ("simulated", INK, ":")):
        values = [(place, getattr(entry.info, label).get(figure)) for place, entry in having]
        known = [(place, value) for place, value in values if value is not None]
        if known:
            axes.plot(*zip(*known, strict=True), linestyle=style, color=colour, linewidth=1.2, label=label, zorder=2)


def _mark(axes: "Axes", label: str, points: Sequence[tuple[int, float]]) -> None:
    """Mark the median runs of accepted entries with a ring, of those that were not ok with a cross."""
    if points:
        marker, colour, face = ("o", GREEN, "none") if label == "accepted" else ("x", RED, RED)
        line = axes.plot(*zip(*points, strict=True), linestyle="none", marker=marker, color=colour, label=label)[0]
        line.set(markerfacecolor=face, markersize=10, markeredgewidth=1.5, zorder=4)


def _mark_dates(axes: "Axes", entries: Sequence[HistoryEntry]) -> None:
    """Name the day of some entries below the lowest panel."""
    step = ceil(len(entries) / _MOST_DATES)
    places = list(range(0, len(entries), step))
    axes.set_xticks(places, [entries[place].info.measured[:10] for place in places])
