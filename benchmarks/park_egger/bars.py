"""Bars: methods side by side over shapes of batches, and shares of a step."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from benchmarks.park_egger.answer import Row, Value
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
    lighter,
    new_figure,
)
from helmsman.simulator.overlap import FIELDS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = (BLUE, ORANGE, GREEN, PURPLE)
_LONGER = ((64, "D"), (128, "o"))
"""Longer generations are marks beside the bars of 32 tokens."""
_SHARES = {
    "h2d": ("H2D only", ORANGE),
    "h2d_cpu": ("H2D + CPU", YELLOW),
    "h2d_gpu": ("H2D + GPU", PURPLE),
    "cpu_gpu": ("CPU + GPU", SKY),
    "all": ("all three", GREEN),
    "gpu": ("GPU only", BLUE),
    "cpu": ("CPU only", RED),
    "other": ("write-back only", GREY),
    "idle": ("nothing", "#FFFFFF"),
}


def grouped_bars(
    rows: Sequence[Row], methods: Sequence[str], columns: Sequence[str], title: str, unit: str
) -> "Figure":
    """A panel for each model and compression; a group for each shape; `columns` stacked, the first light.

    What does not fit is an empty place with a dash (PARK-61)."""
    panels = list(dict.fromkeys((row["model"], row["compressed"]) for row in rows))
    figure = new_figure(12.0, 1.35 + 2.75 * len(panels))
    height = figure.get_figheight()
    for at, (model, compressed) in enumerate(panels):
        low = height - 1.1 - 2.75 * (at + 1) + 0.65
        axes = figure.add_axes((0.06, low / height, 0.925, 1.95 / height))
        mine = [row for row in rows if (row["model"], row["compressed"]) == (model, compressed)]
        _groups(axes, mine, methods, columns)
        name = "4-bit groups" if compressed else "f16"
        axes.set_title(f"{model}, {name}", fontsize=10, loc="left")
        axes.set_ylabel(unit, fontsize=9.5)
    _legend(figure, methods, columns, {row["output"] for row in rows})
    caption(figure, title, "512 tokens prompt, simulated; bars: 32 tokens generated; – does not fit")
    return figure


def _groups(axes: "Axes", rows: Sequence[Row], methods: Sequence[str], columns: Sequence[str]) -> None:
    shapes = list(dict.fromkeys(str(row["shape"]) for row in rows))
    wide = 0.8 / len(methods)
    for number, method in enumerate(methods):
        for group, shape in enumerate(shapes):
            centre = group + (number - (len(methods) - 1) / 2) * wide
            mine = {row["output"]: row for row in rows if row["method"] == method and row["shape"] == shape}
            _bar(axes, mine, centre, wide, columns, _COLOURS[number])
    axes.set_xticks(range(len(shapes)), shapes, fontsize=9.5)
    axes.set_xlim(-0.5, len(shapes) - 0.5)
    axes.set_ylim(bottom=0)
    axes.grid(color="#E6E6E6", linewidth=0.6, axis="y")
    axes.set_axisbelow(True)


def _bar(
    axes: "Axes", mine: Mapping[Value, Row], centre: float, wide: float, columns: Sequence[str], colour: str
) -> None:
    """The bar of 32 tokens, and the marks of longer generations."""
    base = 0.0
    for level, column in enumerate(columns):
        value = mine[32][column]
        if not isinstance(value, float):
            axes.text(centre, 0.0, "–", ha="center", va="bottom", fontsize=10, color=colour, weight="bold")
            continue
        shade = colour if level == len(columns) - 1 else lighter(colour)
        axes.bar(centre, value, wide * 0.92, bottom=base, color=shade)
        base += value
    for output, marker in _LONGER:
        values = [mine[output][column] for column in columns] if output in mine else []
        known = [value for value in values if isinstance(value, float)]
        if known:
            axes.plot([centre], [sum(known)], marker, color="white", markeredgecolor=INK, markersize=4.2)


def _legend(figure: "Figure", methods: Sequence[str], columns: Sequence[str], outputs: set[Value]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Patch | Line2D] = [Patch(color=_COLOURS[at], label=method) for at, method in enumerate(methods)]
    if len(columns) > 1:
        handles.append(Patch(color=lighter(GREY), label="light: prefill"))
    for output, marker in _LONGER:
        if output in outputs:
            mark = Line2D([], [], marker=marker, color="white", markeredgecolor=INK, markersize=5, linestyle="none")
            mark.set_label(f"{output} tokens generated")
            handles.append(mark)
    figure.legend(handles=handles, loc="lower center", ncols=len(handles), frameon=False, fontsize=9)


def stacked_shares(rows: Sequence[Row], title: str) -> "Figure":
    """Fig 18: one bar per workload and method, 100 % each."""
    figure = new_figure(11.0, 1.8 + 0.3 * len(rows))
    height = figure.get_figheight()
    axes = figure.add_axes((0.17, 1.0 / height, 0.81, (height - 1.85) / height))
    left = [0.0] * len(rows)
    for field in FIELDS:
        name, colour = _SHARES[field]
        values = [100 * value if isinstance(value := row[field], float) else 0.0 for row in rows]
        if max(values) > 0.05:
            axes.barh(
                range(len(rows)), values, 0.78, left=left, color=colour, edgecolor="#666666", linewidth=0.3, label=name
            )
        left = [before + value for before, value in zip(left, values, strict=True)]
    names = [f"{row['shape']}{' 4-bit' if row['compressed'] else ''}, {row['method']}" for row in rows]
    axes.set_yticks(range(len(rows)), names, fontsize=9)
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel("% of a decode step", fontsize=9.5)
    figure.legend(loc="lower center", ncols=8, frameon=False, fontsize=9)
    caption(figure, title, "simulated, 512 + 32 tokens, the step in the middle")
    return figure
