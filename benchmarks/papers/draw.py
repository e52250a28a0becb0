"""Pictures of series: lines or grouped bars in panels, published values as stars and dashed levels."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from benchmarks.papers.figure import At, Axis, Drawing, Fact, Found, Kind, Series
from helmsman.analysis.plots.picture import (
    BLUE,
    GREEN,
    GREY,
    INK,
    ORANGE,
    PURPLE,
    RED,
    SKY,
    YELLOW,
    caption,
    new_figure,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, RED, YELLOW, INK, GREY)
_MARKERS = "osD^vPX*h"
_COLUMNS = 3
_WIDE, _HIGH = 4.6, 3.1
"""Inches of one panel's axes."""
_LEFT, _RIGHT, _TOP, _BELOW, _LEGEND = 0.85, 0.25, 1.05, 0.82, 0.3
"""Inches left and right of a panel, above all, below every row, and for the legend."""


_MARKED = 60
"""Lines of more points are drawn without marks."""
_WIDEST = 0.35
"""Of a group's width, one bar."""
_ROOM = 1.07
"""Room above the highest value."""


def draw(drawing: Drawing, title: str, axes: tuple[Axis, Axis], kind: Kind, facts: Mapping[str, Fact]) -> "Figure":
    """All panels, their common legend below them."""
    panels = list(dict.fromkeys(series.panel for series in drawing.series))
    columns = min(_COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    wide = _WIDE * (1.7 if len(panels) == 1 else 1.0)
    figure = new_figure(columns * (wide + _LEFT) + _RIGHT, _TOP + rows * (_HIGH + _BELOW) + _LEGEND)
    colours = {name: at for at, name in enumerate(dict.fromkeys(series.name for series in drawing.series))}
    for at, panel in enumerate(panels):
        place = _place(figure, at, columns, wide)
        mine = [series for series in drawing.series if series.panel == panel]
        here = [found for found in drawing.found if found.panel == panel]
        _panel(figure.add_axes(place), mine, kind, colours)
        _published(figure.axes[-1], here, mine, kind, colours, facts)
        _finish(figure.axes[-1], panel, axes)
    _legend(figure, kind, colours, drawing.found)
    caption(figure, title, drawing.subtitle)
    return figure


def _place(figure: "Figure", at: int, columns: int, wide: float) -> tuple[float, float, float, float]:
    width, height = figure.get_size_inches()
    row, column = divmod(at, columns)
    left = _LEFT + column * (wide + _LEFT)
    bottom = height - _TOP - (row + 1) * _HIGH - row * _BELOW
    return left / width, bottom / height, (wide - 0.1) / width, _HIGH / height


def _panel(axes: "Axes", series: Sequence[Series], kind: Kind, colours: Mapping[str, int]) -> None:
    """All series of one panel."""
    if kind == "bars":
        _bars(axes, series, colours)
        return
    for each in series:
        number = colours[each.name]
        known = [(x, y) for x, y in zip(each.x, each.y, strict=True) if y is not None]
        mark = _mark(number) if len(known) <= _MARKED else ""
        line = axes.plot([x for x, _ in known], [y for _, y in known], marker=mark, markersize=4.2)[0]
        line.set(color=_COLOURS[number % len(_COLOURS)], linewidth=1.5)


def _mark(number: int) -> str:
    return _MARKERS[number % len(_MARKERS)]


def _bars(axes: "Axes", series: Sequence[Series], colours: Mapping[str, int]) -> None:
    """A group for every x; what does not fit is a dash."""
    groups = _groups(series)
    for each in series:
        for x, y in zip(each.x, each.y, strict=True):
            centre, wide = _centre(each.name, x, groups, series)
            colour = _COLOURS[colours[each.name] % len(_COLOURS)]
            if y is None:
                axes.text(centre, 0.0, "–", ha="center", va="bottom", fontsize=11, color=colour, weight="bold")
            else:
                axes.bar(centre, y, wide * 0.92, color=colour)
    axes.set_xticks(range(len(groups)), [str(group) for group in groups], fontsize=9)
    axes.set_xlim(-0.5, len(groups) - 0.5)


def _groups(series: Sequence[Series]) -> list[At]:
    return list(dict.fromkeys(x for each in series for x in each.x))


def _centre(name: str, at: At, groups: Sequence[At], series: Sequence[Series]) -> tuple[float, float]:
    """The middle of a bar, and how wide it is: only series that have something in that group share it."""
    there = [each.name for each in series if at in each.x]
    wide = min(0.8 / len(there), _WIDEST)
    return groups.index(at) + (there.index(name) - (len(there) - 1) / 2) * wide, wide


def _finish(axes: "Axes", panel: str, labels: tuple[Axis, Axis]) -> None:
    """Titles, scales and the grid."""
    x, y = labels
    axes.set_title(panel, fontsize=10, loc="left")
    axes.set_xlabel(x.label, fontsize=9.5, color=INK)
    axes.set_ylabel(y.label, fontsize=9.5, color=INK)
    _scale(axes, x, y)
    axes.grid(color="#E6E6E6", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=9, color="#888888", labelcolor=INK)
    for side in axes.spines.values():
        side.set(color="#888888", linewidth=0.8)


def _scale(axes: "Axes", x: Axis, y: Axis) -> None:
    for axis, scale, drawn in ((x, axes.set_xscale, axes.xaxis), (y, axes.set_yscale, axes.yaxis)):
        if axis.base is not None:
            scale("log", base=axis.base)
            drawn.set_major_formatter("{x:g}")
    low, high = axes.dataLim.intervaly
    bottom = 0.0 if y.base is None and low >= 0.0 else None
    top = high * (_ROOM if y.base is None else _ROOM**4)
    axes.set_ylim(bottom if y.low is None else y.low, top if y.high is None else y.high)
    if x.low is not None or x.high is not None:
        axes.set_xlim(x.low, x.high)


def _published(
    axes: "Axes",
    found: Sequence[Found],
    series: Sequence[Series],
    kind: Kind,
    colours: Mapping[str, int],
    facts: Mapping[str, Fact],
) -> None:
    """Stars where a place is known, dashed levels elsewhere."""
    for each in (each for each in found if each.series):
        colour, value = _COLOURS[colours[each.series] % len(_COLOURS)], facts[each.fact].value
        if each.at is None:
            axes.axhline(value, color=colour, linestyle="--", linewidth=1.0, zorder=1)
            continue
        at: At = each.at if kind == "lines" else _centre(each.series, each.at, _groups(series), series)[0]
        star = axes.plot([at], [value], "*", markersize=12, zorder=5)[0]
        star.set(markerfacecolor="white", markeredgecolor=INK if kind == "bars" else colour, markeredgewidth=1.2)


def _legend(figure: "Figure", kind: Kind, colours: Mapping[str, int], found: Sequence[Found]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Artist] = []
    for name, number in colours.items():
        colour = _COLOURS[number % len(_COLOURS)]
        line = Line2D([], [], color=colour, marker=_mark(number), markersize=5, label=name)
        handles.append(line if kind == "lines" else Patch(color=colour, label=name))
    if any(each.series and each.at is not None for each in found):
        star = Line2D([], [], color=INK, marker="*", markersize=10, markerfacecolor="white", linestyle="none")
        star.set_label("published")
        handles.append(star)
    if any(each.series and each.at is None for each in found):
        handles.append(Line2D([], [], color=INK, linestyle="--", label="published level"))
    rows = 2 if len(handles) > 2.2 * figure.get_size_inches()[0] / 2.2 else 1
    figure.legend(handles=handles, loc="lower center", ncols=-(-len(handles) // rows), frameon=False, fontsize=9)
