"""The search curve as a picture: a panel for each kind of single split, a map of all pairs (PARK-33, 62, Fig 14)."""

from collections.abc import Sequence
from math import inf, isfinite, nan
from typing import TYPE_CHECKING

from helmsman.analysis.plots.picture import BLUE, GREEN, GREY, INK, ORANGE, PURPLE, RED, caption, new_figure
from helmsman.analysis.plots.split_curve import Lines, SplitCurve

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

_LANES = (
    ("cpu", "CPU", BLUE, "-", "o"),
    ("h2d", "H2D", ORANGE, "-", "s"),
    ("decompress", "decompression", PURPLE, "--", "^"),
    ("s2d", "S2D", GREEN, "--", "v"),
    ("gpu", "GPU", GREY, ":", "x"),
)
"""Attribute, name, colour, line and marker of each lane; lanes differ in more than colour."""

_WIDE = 7.4
_SIDE = 5.4
_TOP = 1.0
_PANEL = 2.35
_FOOT = 1.4
_LEGEND = 0.4
"""Inches: the width of panels, the side of the map, above panels, their height, below each, and the legend."""
_NEAR = 0.15
"""Inches between names on an axis."""
_FEW = 30
"""Points of a line that are marked one by one."""
_SPAN = 3.0
"""The number of times the plan's seconds beyond which a point is off the scale."""


def draw_split_curve(curve: SplitCurve) -> "Figure":
    """Draw the picture of a search; milliseconds of one decoder layer.

    The chosen plan is named above and marked in every panel where it lies. Split points where nothing fits are gaps.
    Of many units, names are written where there is room, whole operations first."""
    panels = len(curve.lines)
    height = _TOP + _LEGEND + max(panels * (_PANEL + _FOOT), _SIDE + 1.1)
    width = _WIDE + _SIDE + 2.1
    figure = new_figure(width, height)
    panel_height = (height - _TOP - _LEGEND) / panels
    for number, lines in enumerate(curve.lines):
        low = height - _TOP - (number + 1) * panel_height + _FOOT
        axes = figure.add_axes((0.75 / width, low / height, (_WIDE - 0.95) / width, (panel_height - _FOOT) / height))
        _draw_lines(axes, curve, lines)
    _legend(figure, (_WIDE / 2 + 0.2) / width)
    low = height - _TOP - _SIDE
    _draw_map(figure, figure.add_axes(((_WIDE + 0.95) / width, low / height, _SIDE / width, _SIDE / height)), curve)
    caption(figure, f"{curve.names.label}: {curve.names.symbol} = {curve.seconds * 1e3:.4g} ms", curve.names.subtitle)
    return figure


def _draw_lines(axes: "Axes", curve: SplitCurve, lines: Lines) -> None:
    _line(axes, lines.at, lines.total, f"total {curve.names.symbol}", INK, "-", "", 3.6)
    for name, label, colour, style, marker in _LANES:
        values = getattr(lines, name)
        if any(0.0 < value < inf for value in values):
            _line(
                axes, lines.at, values, curve.names.accelerator if name == "gpu" else label, colour, style, marker, 1.4
            )
    axes.set_ylim(0.0, _highest(curve) * 1e3)
    axes.set_xlim(lines.at[0] - 0.02 * lines.at[-1], lines.at[-1] * 1.02)
    _mark(axes, curve, lines)
    first, rest = ("CPU", curve.names.accelerator) if lines.side == "host" else (curve.names.accelerator, "CPU")
    axes.set_title(
        f"one split: {first} up to the operation below, {rest} after it", fontsize=9.5, loc="left", color=INK
    )
    axes.set_ylabel("ms per layer", fontsize=9.5, color=INK)
    names = [f"all {rest}", *curve.units]
    _name_points(axes.xaxis, [(point, names[point]) for point in lines.at], (_WIDE - 0.95) / (lines.at[-1] * 1.04), 90)
    _plain(axes)


def _mark(axes: "Axes", curve: SplitCurve, lines: Lines) -> None:
    """The seconds of the chosen plan, and its point where it is one of these splits."""
    i, j = curve.chosen
    mine = j == len(curve.units) if lines.side == "host" else i == 0
    point, seconds = [(i if lines.side == "host" else j) if mine else nan], curve.seconds * 1e3
    axes.axhline(seconds, color=RED, linewidth=1.0, linestyle=(0, (4, 3)), zorder=1)
    star = axes.plot(point, [seconds], "*", color=RED, markersize=13, markeredgecolor="white", linestyle="none")[0]
    star.set(label="chosen plan", zorder=5, clip_on=False)


def _line(
    axes: "Axes",
    at: Sequence[int],
    values: Sequence[float],
    label: str,
    colour: str,
    style: str,
    marker: str,
    width: float,
) -> None:
    """A line in milliseconds, broken where nothing fits; marked points only where there are few."""
    shown = [value * 1e3 if isfinite(value) else nan for value in values]
    few = marker if len(at) <= _FEW else ""
    axes.plot(at, shown, color=colour, linestyle=style, linewidth=width, marker=few, markersize=4, label=label)


def _highest(curve: SplitCurve) -> float:
    """Return seconds at the top of the panels: all totals, but not so far above the plan that it lies on the floor."""
    largest = max(value for lines in curve.lines for value in lines.total if isfinite(value))
    return 1.08 * max(curve.seconds, min(largest, _SPAN * curve.seconds))


def _name_points(axis: "Axis", points: Sequence[tuple[int, str]], scale: float, turned: int) -> None:
    """Names on an axis with `scale` inches per unit: whole operations first, chunks where there is room."""
    kept: list[tuple[int, str]] = []
    for whole in (True, False):
        for point, name in points:
            op, _, chunk = name.rpartition(" ")
            first, _, last = chunk.partition("/")
            ends = not last or first == last
            if ends is whole and all(abs(point - other) * scale >= _NEAR for other, _ in kept):
                kept.append((point, op if last and ends else name))
    axis.set_ticks([point for point, _ in kept], labels=[name for _, name in kept], rotation=turned, fontsize=8.5)


def _plain(axes: "Axes") -> None:
    axes.grid(color="#E6E6E6", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(color="#888888", labelcolor=INK)
    for side in axes.spines.values():
        side.set_color("#888888")
        side.set_linewidth(0.8)


def _legend(figure: "Figure", middle: float) -> None:
    """One entry for every line of any panel, below the panels."""
    handles = {}
    for axes in figure.axes:
        handles.update({label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)})
    place = (middle, 0.02)
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="lower center",
        bbox_to_anchor=place,
        ncols=len(handles) if len(handles) < 7 else 4,
        fontsize=8.5,
        frameon=False,
    )


def _draw_map(figure: "Figure", axes: "Axes", curve: SplitCurve) -> None:
    """L over both split points: darker is slower, empty where nothing fits; the plan is marked."""
    count = len(curve.units)
    cells = [[nan] * (count + 1) for _ in range(count + 1)]
    for i, j, seconds in curve.totals:
        cells[j][i] = seconds * 1e3 if isfinite(seconds) else nan
    slowest = min(max(seconds for _, _, seconds in curve.totals if isfinite(seconds)), _SPAN * curve.seconds)
    picture = axes.imshow(cells, origin="lower", cmap="cividis_r", interpolation="nearest", vmax=slowest * 1e3)
    axes.plot(*curve.chosen, "*", color=RED, markersize=15, markeredgecolor="white", zorder=5, clip_on=False)
    axes.set_title(f"two splits: {curve.names.accelerator} between them", fontsize=9.5, loc="left", color=INK)
    axes.set_xlabel(f"last operation of the CPU before the {curve.names.accelerator}", fontsize=9.5, color=INK)
    axes.set_ylabel(f"last operation of the {curve.names.accelerator}", fontsize=9.5, color=INK)
    points = list(enumerate(["none", *curve.units]))
    _name_points(axes.xaxis, points, _SIDE / (count + 1), 90)
    _name_points(axes.yaxis, points, _SIDE / (count + 1), 0)
    _plain(axes)
    axes.grid(visible=False)
    box = axes.get_position()
    bar = figure.add_axes((box.x1 + 0.15 / figure.get_figwidth(), box.y0, 0.18 / figure.get_figwidth(), box.height))
    scale = figure.colorbar(picture, cax=bar, extend="max")
    scale.set_label(f"{curve.names.symbol}, ms per layer", fontsize=9.5, color=INK)
    scale.ax.tick_params(labelsize=8.5, color="#888888", labelcolor=INK)
