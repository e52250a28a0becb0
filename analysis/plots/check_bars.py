"""A check as a picture: a bar for what was predicted of every term, one for what was measured, and the error beside."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from helmsman.analysis.comparison_table import cut
from helmsman.analysis.plots.picture import BLUE, INK, ORANGE, caption, dress_bars, new_figure
from helmsman.schemas.check_report import CheckedTerm, CheckReport
from helmsman.schemas.predicted import Interval
from helmsman.schemas.units import format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH = 11.0
_ROW = 0.34
"""Inches of a term."""
_TOP = 1.05
_BOTTOM = 0.55
_BETWEEN = 0.75
_LEFT = 2.6
_RIGHT = 2.0
_MAX_TERMS = 14
"""Terms of a phase that are drawn at most, the longest."""
_MAX_LETTERS = 36
"""Letters of a term's name that are drawn at most: what is left of the bars has room for them."""


@dataclass(frozen=True, slots=True)
class _Panel:
    """A phase: its total, the interval that was expected of it, its longest terms, and the number of `others`."""

    name: str
    total: CheckedTerm
    expected: Interval
    terms: tuple[CheckedTerm, ...]
    others: int

    @property
    def rows(self) -> tuple[CheckedTerm, ...]:
        """Return what is drawn, from top to bottom."""
        return (self.total, *self.terms)


def draw_check(report: CheckReport) -> "Figure":
    """Draw seconds of a step and of a prompt, predicted at the speeds of the runs and measured: in all, with the
    interval that was expected, and of the longest terms. Terms of several lanes overlap, so that they may add up to
    more than the whole."""
    panels = list(_panels(report))
    sizes = [_ROW * len(panel.rows) for panel in panels]
    height = _TOP + sum(sizes) + _BETWEEN * (len(panels) - 1) + _BOTTOM
    figure = new_figure(_WIDTH, height)
    tops = [_TOP, *(_TOP + _BETWEEN * (place + 1) + used for place, used in enumerate(accumulate(sizes[:-1])))]
    for panel, size, top in zip(panels, sizes, tops, strict=True):
        low = (height - top - size) / height
        axes = figure.add_axes((_LEFT / _WIDTH, low, (_WIDTH - _LEFT - _RIGHT) / _WIDTH, size / height))
        _draw(axes, panel)
    figure.axes[0].legend(
        fontsize=8.5, frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, borderaxespad=0.2
    )
    where = report.machine if report.ran_on is None else report.ran_on
    judged = [row for row in (report.step, report.request) if row is not None and row.op in report.judged]
    errors = [f"{row.op} {row.scaled_error:+.1%}" for row in judged if row.scaled_error is not None]
    told = f": {', '.join(errors)} from the prediction (tolerance {100.0 * report.tolerance:.4g} %)" if errors else ""
    title = f"{report.verdict}{told}"
    caption(figure, title, f"{report.plan} ({where}, {report.runs} runs)")
    return figure


def _panels(report: CheckReport) -> Iterator[_Panel]:
    yield _panel("decode step", report.step, report.at_run_speeds.step_s, report.terms)
    if report.ttft is not None and report.at_run_speeds.ttft_s is not None:
        yield _panel("time to first token", report.ttft, report.at_run_speeds.ttft_s, report.terms)


def _panel(name: str, total: CheckedTerm, expected: Interval, terms: Sequence[CheckedTerm]) -> _Panel:
    own = [term for term in terms if term.phase == total.phase]
    own.sort(key=lambda term: -max(term.measured, term.scaled))
    return _Panel(name, total, expected, tuple(own[:_MAX_TERMS]), max(0, len(own) - _MAX_TERMS))


def _draw(axes: "Axes", panel: _Panel) -> None:
    end = 1.04 * max(panel.expected.high, *(max(row.scaled, row.measured) for row in panel.rows))
    scale, unit = (1.0, "s") if end > 1.0 else (1e3, "ms")
    axes.set_xlim(0.0, end * scale)
    axes.set_ylim(len(panel.rows), 0.0)
    for place, row in enumerate(panel.rows):
        _bars(axes, place + 0.5, row, scale)
        _words(axes, place + 0.5, row, panel)
    low, mid, high = (scale * seconds for seconds in (panel.expected.low, panel.expected.mid, panel.expected.high))
    axes.errorbar(mid, 0.33, xerr=[[mid - low], [high - mid]], color=INK, linewidth=1.0, capsize=2.5, zorder=3)
    smaller = f"; {panel.others} shorter terms are not drawn" if panel.others else ""
    dress_bars(axes, f"{panel.name}, {unit}{smaller}")


def _bars(axes: "Axes", middle: float, row: CheckedTerm, scale: float) -> None:
    predicted, measured = ("predicted, at the speeds of the runs", "measured") if middle < 1.0 else (None, None)
    axes.barh(middle - 0.17, row.scaled * scale, height=0.3, color=BLUE, label=predicted)
    axes.barh(middle + 0.17, row.measured * scale, height=0.3, color=ORANGE, label=measured)


def _words(axes: "Axes", middle: float, row: CheckedTerm, panel: _Panel) -> None:
    """Write the term left of its bars, what was measured and the error right of all."""
    whole = row is panel.total
    name = panel.name if whole else f"{row.op} on {row.resource}" if row.resource else row.op
    error = "" if row.scaled_error is None else f"  {row.scaled_error:+.1%}"
    weight = "bold" if whole else "normal"
    look: dict[str, Any] = {"fontsize": 9, "va": "center", "color": INK, "weight": weight}
    look["transform"] = axes.get_yaxis_transform()
    axes.text(-0.015, middle, cut(name, _MAX_LETTERS), ha="right", parse_math=False, **look)
    axes.text(1.015, middle, f"{format_seconds(row.measured)}{error}", ha="left", **look)
