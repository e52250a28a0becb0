"""The Gantt chart of one decoder layer, or of a few: who computed, moved and expanded what, and when.

The rows and the overlap they show are those of Park & Egger Fig 4-8 and 18 (PARK-64)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from helmsman.analysis.plots.blocks import GROUPS, Chart, ChartSpan
from helmsman.analysis.plots.labels import SIZE, SPACING, LabelRoom, placed
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
    ink_on,
    lighter,
    new_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = dict(zip(GROUPS, (YELLOW, SKY, BLUE, PURPLE, ORANGE, RED, GREEN, GREY), strict=True))

_WIDTH = 13.0
_TRACK = 0.52
"""Inches of a track: two lines of small text."""
_TOP = 0.78
_BOTTOM = 0.88
_RIGHT = 0.2


@dataclass(frozen=True, slots=True)
class Heading:
    """The two lines above a chart: the plan's label, and what is shown of it."""

    title: str
    subtitle: str


def gantt(chart: Chart, heading: Heading) -> "Figure":
    """Return the chart as a figure: rows from top to bottom, milliseconds from left to right.

    Blocks of neighbouring layers are in lighter tones and named with their layer. A block is labelled where its label
    fits in it, upright where it fits only so; narrower blocks are told by their colour and by their neighbours."""
    tracks = sum(len(row.tracks) for row in chart.rows)
    height = _TOP + _BOTTOM + tracks * _TRACK
    figure = new_figure(_WIDTH, height)
    axes = figure.add_axes((0.0, _BOTTOM / height, 1.0, tracks * _TRACK / height))
    _scale(axes, chart, tracks)
    blocks = list(_placed(chart))
    for top, block in blocks:
        _draw(axes, top, block)
    _make_room(figure, axes)
    _write(figure, axes, chart)
    caption(figure, heading.title, heading.subtitle)
    _legend(figure, [block for _, block in blocks])
    return figure


def _placed(chart: Chart) -> Iterator[tuple[int, ChartSpan]]:
    """(track from the top, block)."""
    tracks = (track for row in chart.rows for track in row.tracks)
    return ((top, block) for top, track in enumerate(tracks) for block in track)


def _scale(axes: "Axes", chart: Chart, tracks: int) -> None:
    """Axes in milliseconds and tracks, a name and a line for every row."""
    axes.set_xlim(0.0, chart.seconds * 1e3)
    axes.set_ylim(tracks, 0)
    heights = [len(row.tracks) for row in chart.rows]
    tops = [0, *accumulate(heights)]
    middles = [top + height / 2 for top, height in zip(tops, heights, strict=False)]
    axes.set_yticks(middles, [row.name for row in chart.rows], fontsize=9.5, color=INK)
    axes.tick_params(axis="y", length=0, pad=8)
    axes.tick_params(axis="x", labelsize=9, color=INK, labelcolor=INK)
    axes.set_xlabel("ms", fontsize=9.5, color=INK)
    for top in tops[1:-1]:
        axes.axhline(top, color="#D0D0D0", linewidth=0.6, zorder=0)
    axes.grid(axis="x", color="#E6E6E6", linewidth=0.6)
    axes.set_axisbelow(True)
    for side in axes.spines.values():
        side.set_color("#888888")
        side.set_linewidth(0.8)


def colour(block: ChartSpan) -> str:
    """Return the colour of a block."""
    return COLOURS[block.group] if block.inside else lighter(COLOURS[block.group])


def _draw(axes: "Axes", top: int, block: ChartSpan) -> None:
    from matplotlib.patches import Rectangle

    face = colour(block)
    corner, width = (block.start * 1e3, top + 0.1), (block.end - block.start) * 1e3
    narrow = (block.end - block.start) * 1e3 < 0.002 * axes.get_xlim()[1]
    edge = face if narrow else INK if block.inside else GREY
    axes.add_patch(
        Rectangle(corner, width, 0.8, facecolor=face, edgecolor=edge, linewidth=1.0 if narrow else 0.5, zorder=2)
    )


def _make_room(figure: "Figure", axes: "Axes") -> None:
    """Leave the names of rows as much room on the left as they need."""
    wide = max(label.get_window_extent().width for label in axes.get_yticklabels())
    left = wide / figure.dpi + 0.3
    box = axes.get_position()
    axes.set_position((left / _WIDTH, box.y0, (_WIDTH - left - _RIGHT) / _WIDTH, box.height))


def _write(figure: "Figure", axes: "Axes", chart: Chart) -> None:
    """Every label that has a place, each in its block or in the gap beside."""
    sizes = dict[tuple[str, int], tuple[float, float]]()

    def size(text: str, turned: int) -> tuple[float, float]:
        if (text, turned) not in sizes:
            probe = figure.text(0, 0, text, fontsize=SIZE, rotation=turned, linespacing=SPACING)
            box = probe.get_window_extent()
            probe.remove()
            sizes[text, turned] = box.width, box.height
        return sizes[text, turned]

    room = LabelRoom(axes.get_window_extent().width / chart.seconds, 0.8 * _TRACK * figure.dpi, chart.seconds)
    tracks = (track for row in chart.rows for track in row.tracks)
    for top, track in enumerate(tracks):
        for label in placed(track, room, size):
            ink = INK if label.block is None else ink_on(colour(label.block))
            text = axes.text(label.at * 1e3, top + 0.5, label.text, fontsize=SIZE, color=ink, zorder=3)
            text.set(ha="center", va="center", rotation=label.turned, linespacing=SPACING)


def _legend(figure: "Figure", blocks: Sequence[ChartSpan]) -> None:
    """The groups that occur, below the time axis."""
    from matplotlib.patches import Patch

    used = {block.group for block in blocks}
    keys = [
        Patch(facecolor=COLOURS[group], edgecolor=INK, linewidth=0.5, label=group) for group in GROUPS if group in used
    ]
    if any(not block.inside for block in blocks):
        keys.append(Patch(facecolor="#DDDDDD", edgecolor=GREY, linewidth=0.5, label="lighter: another layer"))
    figure.legend(handles=keys, loc="lower center", ncols=len(keys), fontsize=8.5, frameon=False, handlelength=1.4)
