"""Strategies side by side: a bar for each plan's seconds with their interval, and what the others lack."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Literal

from helmsman.analysis.comparison_table import BY, cut, question_line, short_label, why_not
from helmsman.analysis.plots.picture import BLUE, GREEN, INK, caption, dress_bars, new_figure
from helmsman.planner.prediction.speed import interval
from helmsman.schemas.comparison import Comparison, Row
from helmsman.schemas.objective import Objective
from helmsman.schemas.units import format_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Place = tuple[float, Row]
"""Inches from the top to the middle of a strategy."""

_WIDTH = 12.0
_PLAN = 0.46
"""Inches of a strategy with its plan below its name."""
_NONE = 0.29
"""Inches of a strategy without a plan."""
_TOP = 0.85
_BOTTOM = 0.62
_GAP = 0.32
_SPAN = 10.0
"""The number of times the best one's seconds at which a bar leaves the scale."""
_LONGEST = 66
"""The number of letters that are shown of a plan's label at most."""
_WORDS = 110
"""The number of letters that are shown of why there is no plan at most."""
_FADED = "#777777"


def draw_strategies(comparison: Comparison) -> "Figure":
    """Bars from the best to the worst, of what the comparison is sorted by; whiskers are the 5th and 95th percentile,
    bars with an arrow leave the scale. Below, strategies without a plan, and why."""
    tops = [0.0, *accumulate(_NONE if row.planned is None else _PLAN for row in comparison.rows)]
    height = _TOP + _BOTTOM + tops[-1]
    figure = new_figure(_WIDTH, height)
    axes = figure.add_axes((0.0, _BOTTOM / height, 1.0, tops[-1] / height))
    axes.set_ylim(tops[-1], 0.0)
    scale = _scale(axes, comparison)
    middles = [(top + bottom) / 2 for top, bottom in pairwise(tops)]
    places = list(zip(middles, comparison.rows, strict=True))
    for middle, row in places:
        _draw(axes, middle, row, comparison, scale)
    wide = (max(sizes, default=0.0) for sizes in (_names(axes, places), _numbers(axes, places, comparison.objective)))
    left, right = (size + _GAP for size in wide)
    box = axes.get_position()
    axes.set_position((left / _WIDTH, box.y0, (_WIDTH - left - right) / _WIDTH, box.height))
    software = "; engines priced with this machine's launch times" if comparison.same_software else ""
    caption(figure, f"{BY[comparison.objective]} by strategy", question_line(comparison) + software)
    return figure


def _scale(axes: "Axes", comparison: Comparison) -> float:
    """Return an axis from 0 to the slowest, but no further than some times the best; its units in a second."""
    times = [interval(row.planned, comparison.objective) for row in comparison.rows if row.planned is not None]
    best, slowest = min(time.mid for time in times), max(time.high for time in times)
    end = 1.03 * min(slowest, _SPAN * best)
    scale = 1.0 if end > 1.0 else 1e3
    axes.set_xlim(0.0, end * scale)
    dress_bars(axes, f"{BY[comparison.objective]}, {'s' if end > 1.0 else 'ms'}")
    return scale


def _draw(axes: "Axes", middle: float, row: Row, comparison: Comparison, scale: float) -> None:
    """The bar of a plan with its whiskers, or an arrow at the end of the scale; where there is none, why."""
    end = axes.get_xlim()[1]
    if row.planned is None:
        reason = f"{row.verdict.replace('-', ' ')}: {why_not(row, comparison.memory_names)}"
        words = cut(reason, _WORDS)
        drawn = axes.text(0.006 * end, middle, words, fontsize=8.5, color=_FADED, va="center")
        drawn.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1.5})
        return
    times = interval(row.planned, comparison.objective)
    low, mid, high = (scale * seconds for seconds in (times.low, times.mid, times.high))
    axes.barh(middle, min(mid, end), height=0.6 * _PLAN, color=GREEN if row.relative == 1.0 else BLUE, zorder=2)
    axes.errorbar(mid, middle, xerr=[[mid - low], [high - mid]], color=INK, linewidth=1.1, capsize=3, zorder=3)
    if mid > end:
        axes.plot(end, middle, ">", color=BLUE, markersize=11, clip_on=False, zorder=4)


def _names(axes: "Axes", places: Sequence[Place]) -> Iterator[float]:
    """Strategies and their plans, left of the axis; yields the inches that each needs."""
    for middle, row in places:
        if row.planned is None:
            yield _beside(axes, middle, row.strategy, _FADED, "right")
            continue
        label = cut(short_label(row.strategy, row.planned.label), _LONGEST)
        yield _beside(axes, middle, row.strategy, INK, "right", label)


def _numbers(axes: "Axes", places: Sequence[Place], objective: Objective) -> Iterator[float]:
    """Seconds, and how many times the best they are, right of the axis; yields the inches that each needs."""
    for middle, row in places:
        if row.planned is not None:
            times = format_seconds(interval(row.planned, objective).mid)
            yield _beside(axes, middle, times, INK, "left", "best" if row.relative == 1.0 else f"{row.relative:.2f}x")


def _beside(
    axes: "Axes", middle: float, text: str, ink: str, side: Literal["left", "right"], below: str | None = None
) -> float:
    """Write a line, and a smaller one `below` it, beside the axis; the inches that they need."""
    lines = [(text, middle, 9.5, ink)]
    if below is not None:
        lines = [(text, middle - 0.17 * _PLAN, 9.5, ink), (below, middle + 0.22 * _PLAN, 7.5, "#555555")]
    wide = 0.0
    for words, place, size, colour in lines:
        drawn = axes.text(-0.01 if side == "right" else 1.02, place, words, fontsize=size, color=colour)
        drawn.set(ha=side, va="center", transform=axes.get_yaxis_transform())
        wide = max(wide, drawn.get_window_extent().width / axes.figure.get_dpi())
    return wide
