"""Sweeps of serving runs: load-latency curves (NEO-36), throughput relative to one policy (NEO-39, APEX-37)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from helmsman.analysis.plots.picture import (
    BLUE,
    GREEN,
    GREY,
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
from helmsman.schemas.serving import Latency, ServingReport, ServingSweep, SweepPoint

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, RED, GREY)
MARKERS = "osD^vPx"
_HEIGHT = 4.6
_EACH = 4.7
_TOP = 0.95
_BOTTOM = 0.95
_LEFT = 0.95
_RIGHT = 0.15
_ACROSS = {
    "rate": "arrivals, requests/s",
    "output": "output tokens",
    "input": "prompt tokens",
    "cpu-bandwidth": "bandwidth of the host, times its own",
}


@dataclass(frozen=True, slots=True)
class Panel:
    """One quantity drawn over the swept values; None where a run has none."""

    up: str
    value: Callable[[SweepPoint], float | None]
    log: bool = False


def draw_sweep(serving_sweep: ServingSweep, subtitle: str) -> "Figure":
    """Draw a panel for each of what is compared, a line for each policy."""
    panels = _panels(serving_sweep)
    width = _EACH * len(panels)
    figure = new_figure(width, _HEIGHT)
    for number, panel in enumerate(panels):
        left = (number * _EACH + _LEFT) / width
        size = (_EACH - _LEFT - _RIGHT) / width, (_HEIGHT - _TOP - _BOTTOM) / _HEIGHT
        _draw(figure.add_axes((left, _BOTTOM / _HEIGHT, *size)), serving_sweep, panel)
    handles, labels = figure.axes[-1].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=7, fontsize=9, frameon=False)
    caption(figure, f"serving over {_ACROSS[serving_sweep.over]}", subtitle)
    return figure


def _panels(serving_sweep: ServingSweep) -> Sequence[Panel]:
    tokens = Panel("output tokens/s", lambda point: point.report.throughput.output_tokens)
    per_token = Panel(
        "mean E2E / output tokens, s", _latency(lambda latency: _mean(latency)), serving_sweep.over == "rate"
    )
    if serving_sweep.over == "rate":
        return per_token, Panel("p99 TTFT, s", _latency(lambda latency: _ttft(latency)), True), tokens
    if serving_sweep.relative_to:
        return Panel(f"output tokens/s relative to {serving_sweep.relative_to}", _relative(serving_sweep)), tokens
    return tokens, per_token


def _relative(serving_sweep: ServingSweep) -> Callable[[SweepPoint], float | None]:
    """Of all but the policy that they are compared with."""
    return lambda point: None if point.policy == serving_sweep.relative_to else point.relative


def _latency(value: Callable[[Latency], float | None]) -> Callable[[SweepPoint], float | None]:
    return lambda point: value(point.report.latency)


def _mean(latency: Latency) -> float | None:
    return None if latency.per_token is None else latency.per_token.mean


def _ttft(latency: Latency) -> float | None:
    return None if latency.ttft is None else latency.ttft.p99


def _draw(axes: "Axes", serving_sweep: ServingSweep, panel: Panel) -> None:
    points = sorted(serving_sweep.points, key=lambda point: point.policy)
    for number, (policy, mine) in enumerate(groupby(points, lambda point: point.policy)):
        pairs = [(point.value, panel.value(point)) for point in mine]
        there = sorted((at, value) for at, value in pairs if value is not None)
        if not there:
            continue
        across, up = [at for at, _ in there], [value for _, value in there]
        line = axes.plot(across, up, label=policy, linewidth=1.4, markersize=4, marker=MARKERS[number % len(MARKERS)])
        line[0].set_color(COLOURS[number % len(COLOURS)])
    dress(axes, _ACROSS[serving_sweep.over], panel.up)
    if panel.log:
        axes.set_yscale("log")
        by_powers(axes.yaxis)
    else:
        axes.set_ylim(0.0, 1.05 * axes.get_ylim()[1])
    if "relative" in panel.up:
        axes.axhline(1.0, color=INK, linewidth=0.8, linestyle=":")


def describe(report: ServingReport) -> str:
    """Return a line about where the requests came from."""
    run = report.run
    replicas = f", {run.replicas} replicas" if run.replicas > 1 else ""
    return f"{run.requests}: {report.counts.asked} requests{replicas}, {run.source}"
