"""Pictures of studies: what is drawn of each figure, and its curves."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from benchmarks.park_egger.ablation import DIVIDED
from benchmarks.park_egger.answer import Row
from benchmarks.park_egger.bars import grouped_bars, stacked_shares
from benchmarks.park_egger.study import Study
from helmsman.analysis.plots.picture import BLUE, GREY, INK, ORANGE, PURPLE, RED, caption, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Picture = tuple[str, "Figure"]
"""A name and a figure."""

_PANELS = {
    "a": "1x50",
    "b": "1x50, Scores in 8 chunks",
    "c": "1x100, 4-bit",
    "d": "1x100, 4-bit, Scores in 8 chunks",
}
_LANES = (
    ("CPU", BLUE, "-", "o"),
    ("H2D", ORANGE, "-", "s"),
    ("decompress", PURPLE, "--", "^"),
)
_METHODS = ("op-split", "gpu-only", "flexgen", "flexgen cpu")


def draw(study: Study) -> Iterator[Picture]:
    """Every picture of a study; none for those that are a table."""
    rows = study.rows
    if study.figure == "13":
        names = ("flexgen cpu", "flexgen cpu turned", "op-split", "op-split turned")
        yield "13", grouped_bars(rows, names, ("prefill s", "generation s"), f"Fig 13: {study.title}", "s")
    elif study.figure == "14":
        yield "14", _split_points(rows)
    elif study.figure in ("15", "16"):
        name = f"Fig {study.figure}: {study.title}"
        yield f"{study.figure}-throughput", grouped_bars(rows, _METHODS, ("tokens/s",), name, "tokens/s")
        yield f"{study.figure}-latency", grouped_bars(rows, _METHODS, ("prefill s", "generation s"), name, "s")
    elif study.figure == "17":
        methods = ("op-split", "op-split nvme")
        yield "17", grouped_bars(rows, methods, ("tokens/s",), f"Fig 17: {study.title}", "tokens/s")
    elif study.figure == "18":
        yield "18", stacked_shares(rows, f"Fig 18: {study.title}")
    elif study.figure == "19":
        columns = ("prefill s", "generation s")
        yield "19", grouped_bars(rows, DIVIDED, columns, f"Fig 19: {study.title}", "s")
    elif study.figure == "sensitivity":
        yield "sensitivity", _gain_over_link(rows)


def _split_points(rows: Sequence[Row]) -> "Figure":
    """Fig 14: L and its lanes over one split point, a panel for each workload."""
    figure = new_figure(13.0, 9.4)
    for at, (panel, title) in enumerate(_PANELS.items()):
        place = (0.05 + 0.49 * (at % 2), 0.575 - 0.44 * (at // 2), 0.44, 0.29)
        _panel(figure.add_axes(place), [row for row in rows if row["panel"] == panel], f"({panel}) {title}")
    handles, labels = figure.axes[-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(labels), frameon=False, fontsize=9)
    caption(
        figure, "Fig 14: one split point, OPT-30B", "the CPU up to the operation below, the GPU after it; L as printed"
    )
    return figure


def _panel(axes: "Axes", rows: Sequence[Row], title: str) -> None:
    at = range(len(rows))
    total = _column(rows, "L")
    axes.plot(at, total, color=INK, linewidth=3.2, label="L")
    for name, colour, style, marker in _LANES:
        values = _column(rows, name)
        if any(values):
            axes.plot(at, values, color=colour, linestyle=style, marker=marker, markersize=3.5, label=name)
    best = min(at, key=lambda point: total[point])
    axes.plot([best], [total[best]], "*", color=RED, markersize=13, markeredgecolor="white", label="best", zorder=5)
    axes.set_ylim(0, 1.6 * total[0])
    change = total[best] / total[0] - 1
    axes.set_title(f"{title}: {total[best]:.3g} ms, {change:+.0%} against GPU-only", fontsize=10, loc="left")
    axes.set_ylabel("ms per layer", fontsize=9.5)
    axes.set_xticks(list(at), [str(row["last on CPU"]) for row in rows], rotation=90, fontsize=8.5)
    axes.grid(color="#E6E6E6", linewidth=0.6)


def _gain_over_link(rows: Sequence[Row]) -> "Figure":
    """PARK-68: what overlapping gains over GPU-only, by the bandwidth of the link."""
    figure = new_figure(7.0, 4.8)
    axes = figure.add_axes((0.11, 0.13, 0.85, 0.69))
    for compressed, colour, name in ((False, BLUE, "f16"), (True, PURPLE, "4-bit groups")):
        mine = [row for row in rows if row["compressed"] is compressed]
        gains = [100 * gain for gain in _column(mine, "gain")]
        axes.plot(_column(mine, "link"), gains, color=colour, marker="o", label=name)
    axes.axvline(1.0, color=GREY, linestyle=":", linewidth=1.0)
    axes.set_xscale("log", base=2)
    ticks = _column([row for row in rows if row["compressed"] is False], "link")
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.set(xlabel="bandwidth of the link, times PCIe Gen4 x16", ylabel="generation time saved, %")
    axes.set_ylim(bottom=0)
    axes.grid(color="#E6E6E6", linewidth=0.6)
    axes.legend(frameon=False)
    caption(figure, "Operation splits against GPU-only, OPT-30B 1x50", "a faster interconnect leaves less to overlap")
    return figure


def _column(rows: Sequence[Row], name: str) -> list[float]:
    return [float(value) for row in rows if isinstance(value := row[name], float | int)]
