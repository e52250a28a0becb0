"""FLOPs of a decode step against KV bytes, one line per model and length, one point per batch (Fig 3, PARK-10)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchmarks.characters import Character
from helmsman.analysis.plots.picture import BLUE, GREEN, ORANGE, PURPLE, RED, SKY, caption, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY)
_MARKERS = "osDv^P"
_STYLES = ("-", "--", ":", "-.")


def draw_characters(characters: Sequence[Character]) -> "Figure":
    """Draw with both axes logarithmic: Gbytes of cache across, GFLOP of a step up."""
    figure = new_figure(9.0, 6.0)
    axes = figure.add_axes((0.1, 0.11, 0.61, 0.75))
    models = list(dict.fromkeys(one.model for one in characters))
    lengths = list(dict.fromkeys((one.prompt, one.output) for one in characters))
    for place, model in enumerate(models):
        for style, length in enumerate(lengths):
            points = [one for one in characters if one.model == model and (one.prompt, one.output) == length]
            _line(axes, points, place, style, model if style == 0 else None)
    axes.set(xscale="log", yscale="log", xlabel="KV cache, GB", ylabel="decode step, GFLOP")
    axes.grid(visible=True, which="both", alpha=0.25)
    _legend(axes, lengths)
    batches = ", ".join(str(batch) for batch in sorted({one.batch for one in characters}))
    caption(figure, "Work against cache", f"last decode step of a batch; points: batches of {batches}")
    return figure


def _line(axes: "Axes", points: Sequence[Character], place: int, style: int, label: str | None) -> None:
    colour, marker = _COLOURS[place % len(_COLOURS)], _MARKERS[place % len(_MARKERS)]
    across, up = [one.kv_bytes / 1e9 for one in points], [one.flops / 1e9 for one in points]
    line = _STYLES[style % len(_STYLES)]
    axes.plot(across, up, color=colour, marker=marker, linestyle=line, markersize=5, linewidth=1.2, label=label)


def _legend(axes: "Axes", lengths: Sequence[tuple[int, int]]) -> None:
    """Models by colour and marker, lengths by the style of the line."""
    models = axes.legend(title="model", loc="upper left", bbox_to_anchor=(1.02, 1.0), frameon=False)
    axes.add_artist(models)
    lines = [axes.plot([], [], color="black", linestyle=style)[0] for style in _STYLES[: len(lengths)]]
    names = [f"{prompt} + {output} tokens" for prompt, output in lengths]
    axes.legend(lines, names, title="prompt + output", loc="lower left", bbox_to_anchor=(1.02, 0.0), frameon=False)
