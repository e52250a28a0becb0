"""Serving runs: how latencies are distributed (NEO-37), and requests and caches over time."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from helmsman.analysis.plots.picture import BLUE, GREY, ORANGE, RED, caption, dress, new_figure
from helmsman.analysis.plots.serving_curves import COLOURS
from helmsman.schemas.requests import Floats
from helmsman.schemas.served_table import ServedTable
from helmsman.schemas.serving import Slo
from helmsman.schemas.units import format_seconds
from helmsman.simulator.serving.metrics import e2e, per_token, tpot, ttft
from helmsman.simulator.serving.requests_in_system import CountOverTime, present, running, thinned
from helmsman.simulator.serving.run import Occupancy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Run = tuple[str, ServedTable]
"""A run and its name."""

_WIDTH = 11.5
_HEIGHT = 7.2
_LEFT = 0.8
_RIGHT = 0.25
_TOP = 0.95
_BOTTOM = 0.6
_BETWEEN = 0.85
_MOST = 4000
"""Points of a line: more than a picture has pixels across, so none is missed."""
_LATENCIES = (
    (ttft, "TTFT, s", "ttft"),
    (tpot, "TPOT, s", "tpot"),
    (per_token, "E2E / output tokens, s", "per_token"),
)
"""The latencies that a picture of a serving run has: the function that computes one for each request, its label, and
the field of an SLO that limits it."""
_E2E = (e2e, "E2E, s", "e2e")
"""The latency of whole requests, which a picture has if the SLO limits it."""


def draw_latencies(runs: Sequence[Run], subtitle: str) -> "Figure":
    """Cumulative distributions of TTFT, TPOT and per-token latency, a line for each run."""
    figure = new_figure(_WIDTH, 4.4)
    for axes, (values, name, _) in zip(_row(figure, len(_LATENCIES), 0, 1), _LATENCIES, strict=True):
        _distributions(axes, [(run, values(served)) for run, served in runs], name)
    _legend(figure.axes[0])
    caption(figure, "latency of requests", subtitle)
    return figure


def draw_run(run: Run, occupancy: Occupancy, title: str, subtitle: str, slo: Slo | None = None) -> "Figure":
    """Above, latencies of one run, requests with attention on the host apart, and limits of `slo`; below, requests and
    caches over time."""
    figure = new_figure(_WIDTH, _HEIGHT)
    latencies = _LATENCIES if slo is None or slo.e2e is None else (*_LATENCIES, _E2E)
    for axes, (values, name, field) in zip(_row(figure, len(latencies), 0, 2), latencies, strict=True):
        _distributions(axes, _sides(run[1], values(run[1])), name)
        limit: float | None = None if slo is None else getattr(slo, field)
        if limit is not None:
            _draw_limit(axes, limit)
    _legend(figure.axes[0])
    there, cached = _row(figure, 2, 1, 2)
    _draw_requests(there, run[1])
    _draw_caches(cached, occupancy)
    caption(figure, title, subtitle)
    return figure


def _row(figure: "Figure", count: int, row: int, rows: int) -> "list[Axes]":
    """`count` axes beside each other in one of `rows` rows from the top."""
    width, height = figure.get_size_inches()
    tall = (height - _TOP - _BOTTOM - (rows - 1) * _BETWEEN) / rows
    low = height - _TOP - (row + 1) * tall - row * _BETWEEN
    wide = (width - _RIGHT) / count
    return [
        figure.add_axes(((number * wide + _LEFT) / width, low / height, (wide - _LEFT) / width, tall / height))
        for number in range(count)
    ]


def _legend(axes: "Axes") -> None:
    """Above the axes, where no line is."""
    axes.legend(fontsize=8.5, frameon=False, loc="lower left", bbox_to_anchor=(-0.02, 1.03), ncols=7, borderaxespad=0.0)


def _sides(served: ServedTable, values: Floats) -> list[tuple[str, Floats]]:
    on_cpu = served.cpu_tokens > 0
    if not on_cpu.any():
        return [("all requests", values)]
    return [("on the accelerator", values[~on_cpu]), ("partly on the host", values[on_cpu])]


def _distributions(axes: "Axes", runs: Sequence[tuple[str, Floats]], name: str) -> None:
    for number, (run, values) in enumerate(runs):
        known = np.sort(values[~np.isnan(values)])
        rows = thinned(len(known), _MOST)
        colour = COLOURS[number % len(COLOURS)]
        axes.plot(known[rows], 100.0 * (rows + 1) / max(1, len(known)), label=run, color=colour, linewidth=1.4)
    axes.set_ylim(0.0, 100.0)
    axes.set_xlim(left=0.0)
    dress(axes, name, "requests, %")


def _draw_limit(axes: "Axes", seconds: float) -> None:
    """Draw a limit. How many requests keep all limits at once no single curve shows."""
    axes.axvline(seconds, color=RED, linewidth=1.1, linestyle="--")
    axes.set_xlim(0.0, max(axes.get_xlim()[1], 1.1 * seconds))
    axes.set_xlabel(f"{axes.get_xlabel()} (limit {format_seconds(seconds)})")


def _draw_requests(axes: "Axes", served: ServedTable) -> None:
    for steps, name, colour in ((present(served), "there", GREY), (running(served), "running", BLUE)):
        _stairs(axes, steps, name, colour)
    dress(axes, "s", "requests")
    axes.set_ylim(0.0, 1.05 * axes.get_ylim()[1])
    _legend(axes)


def _stairs(axes: "Axes", steps: CountOverTime, name: str, colour: str) -> None:
    rows = thinned(len(steps.at_s), _MOST)
    axes.plot(steps.at_s[rows], steps.count[rows], drawstyle="steps-post", label=name, color=colour, linewidth=1.1)


def _draw_caches(axes: "Axes", occupancy: Occupancy) -> None:
    rows = thinned(len(occupancy.at_s), _MOST)
    homes = ((occupancy.gpu_share, "accelerator", BLUE), (occupancy.cpu_share, "host", ORANGE))
    for share, name, colour in homes:
        if share is not None:
            axes.plot(occupancy.at_s[rows], 100.0 * share[rows], label=name, color=colour, linewidth=1.1)
    dress(axes, "s", "tokens of the cache in use, %")
    axes.set_ylim(0.0, 100.0)
    _legend(axes)
