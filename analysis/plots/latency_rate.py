"""Latency against tokens/s: a line for every strategy, a point for every batch, the front that none of them beats."""

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from helmsman.analysis.comparison_table import question_line
from helmsman.analysis.front import front
from helmsman.analysis.plots.picture import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    by_powers,
    caption,
    dress,
    new_figure,
)
from helmsman.schemas.comparison import Comparison, Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_WIDTH = 11.5
_HEIGHT = 7.0
_LEFT = 0.85
_RIGHT = 2.0
_TOP = 0.85
_BOTTOM = 0.6
_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, RED)
_MARKERS = "osD^vP"
_FRONT = "#F0E442"
_NEAR = 4.0
"""Pixels between names of points."""


def draw_points(comparison: Comparison) -> "Figure":
    """Draw with both axes logarithmic: seconds of a request across, output tokens/s up; the front is a broad band.

    Points on the front are named with their batch where there is room."""
    figure = new_figure(_WIDTH, _HEIGHT)
    size = (_WIDTH - _LEFT - _RIGHT) / _WIDTH, (_HEIGHT - _TOP - _BOTTOM) / _HEIGHT
    axes = figure.add_axes((_LEFT / _WIDTH, _BOTTOM / _HEIGHT, *size))
    _scale(axes, comparison.points)
    best = front(comparison.points)
    axes.plot(*_places(best), color=_FRONT, linewidth=9, solid_capstyle="round", label="front", zorder=1)
    for number, (strategy, points) in enumerate(groupby(comparison.points, lambda point: point.strategy)):
        _draw(axes, number, strategy, tuple(points))
    _name(axes, best)
    figure.legend(loc="upper right", bbox_to_anchor=(1 - 0.1 / _WIDTH, 1 - _TOP / _HEIGHT), fontsize=8.5, frameon=False)
    batches = [point.batch for point in comparison.points]
    caption(figure, "latency against throughput", question_line(comparison, f"{min(batches)} to {max(batches)}"))
    return figure


def _scale(axes: "Axes", points: Sequence[Point]) -> None:
    """Both axes, with room for names left of the first point."""
    axes.set(xscale="log", yscale="log")
    across, up = _places(points)
    axes.set_xlim(*_limits(across, 0.11))
    axes.set_ylim(*_limits(up, 0.06))
    for axis in (axes.xaxis, axes.yaxis):
        by_powers(axis)
    dress(axes, "request, s (all tokens of all sequences)", "output tokens/s")


def _limits(values: Sequence[float], room: float) -> tuple[float, float]:
    """Return the ends of an axis; `room`: the share of it that is free before the least value."""
    spread = max(values) / min(values) * 1.5
    return min(values) / spread**room / 1.1, max(values) * spread**0.06 * 1.1


def _places(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    speeds = [point.planned.speed for point in points]
    return [speed.request.mid for speed in speeds], [speed.rate.mid for speed in speeds]


def _draw(axes: "Axes", number: int, strategy: str, points: Sequence[Point]) -> None:
    """The line of one strategy; those of one colour differ in their strokes and in whether their marks are filled."""
    turn, colour = divmod(number, len(_COLOURS))
    style, face = ("-", _COLOURS[colour]) if turn % 2 == 0 else ("--", "white")
    line = axes.plot(
        *_places(points), linestyle=style, marker=_MARKERS[(colour + turn) % len(_MARKERS)], label=strategy
    )
    line[0].set(color=_COLOURS[colour], markerfacecolor=face, markersize=5, linewidth=1.3, zorder=3)


def _name(axes: "Axes", points: Sequence[Point]) -> None:
    """The batches of the front's points, from the largest rate down, left above them where nothing is named yet."""
    taken: list[tuple[float, float, float, float]] = []
    for point in reversed(points):
        speed = point.planned.speed
        at = speed.request.mid, speed.rate.mid
        text = axes.annotate(f"batch {point.batch}", at, xytext=(-6, 5), textcoords="offset points", ha="right")
        text.set(fontsize=8, color=INK, zorder=5)
        box = text.get_window_extent()
        edges = (box.x0 - _NEAR, box.y0 - _NEAR, box.x1 + _NEAR, box.y1 + _NEAR)
        if any(_meet(edges, other) for other in taken):
            text.remove()
        else:
            taken.append(edges)


def _meet(one: tuple[float, float, float, float], other: tuple[float, float, float, float]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
