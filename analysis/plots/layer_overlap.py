"""Overlap layer by layer: what a layer computes while the next one is loaded (Gupta & Dwarkadas Fig 5 to 8, Table IV;
GUPTA-14, 33, 41, 42)."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import log
from typing import TYPE_CHECKING

from helmsman.analysis.plots.picture import BLUE, GREY, INK, ORANGE, PURPLE, RED, SKY, caption, new_figure
from helmsman.schemas.plan import Plan
from helmsman.simulator.per_layer import LayerKind, LayerTimes, PassLayers

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOADED: dict[LayerKind, str] = {"embedding": GREY, "attention": SKY, "ffn": ORANGE, "block": SKY, "output": PURPLE}
_COMPUTED: dict[LayerKind, str] = {"embedding": GREY, "attention": BLUE, "ffn": RED, "block": BLUE, "output": PURPLE}
_WORDS = {"prefill": "prompts", "decode": "decode steps", "ffn": "FFN"}

_WIDTH = 13.0
_LEFT = 0.85
_RIGHT = 0.25
_TOP = 0.95
_LEGEND = 0.45
_BARS = 2.3
"""Inches of the seconds of a pass."""
_RATIO = 0.85
"""Inches of the ratios below them."""
_INNER = 0.1
"""Inches between seconds and ratios."""
_FOOT = 0.75
"""Inches below both."""
_INSIDE = 0.85
"""Of the scale of ratios, up to which numbers are written: beyond they would meet those of the seconds."""
_MOST = 30.0
"""Ratios beyond are drawn at the edge."""


def draw_overlaps(plan: Plan, passes: Sequence[PassLayers]) -> "Figure":
    """For each pass: bars, the seconds in which the next layer is loaded; a line, those in which this one computes; and
    below, compute over load: 1 is a perfect overlap, less waits for memory, more for computation."""
    pass_height = _BARS + _INNER + _RATIO + _FOOT
    height = _TOP + len(passes) * pass_height + _LEGEND - 0.25
    figure = new_figure(_WIDTH, height)
    across = (_WIDTH - _LEFT - _RIGHT) / _WIDTH
    for number, one_pass in enumerate(passes):
        top = height - _TOP - number * pass_height
        bars = figure.add_axes((_LEFT / _WIDTH, (top - _BARS) / height, across, _BARS / height))
        low = top - _BARS - _INNER - _RATIO
        ratio = figure.add_axes((_LEFT / _WIDTH, low / height, across, _RATIO / height))
        pairs = list(pairwise(one_pass.layers))
        _draw_times(bars, pairs, _title(one_pass))
        _draw_ratios(ratio, pairs)
    _legend(figure, passes)
    work = plan.workload
    shape = f"{work.prompt_tokens} + {work.output_tokens} tokens, batch {work.shape}"
    what = "a layer's computation against the loading of the next one, simulated"
    caption(figure, plan.label, f"{plan.model.name} on {plan.hardware.name}: {shape}; {what}")
    return figure


_Pair = tuple[LayerTimes, LayerTimes]


def _word(name: str) -> str:
    return _WORDS.get(name, name)


def _title(pass_layers: PassLayers) -> str:
    """Return the pass, and the mean ratios of its kinds of layers."""
    ratios = [
        f"{_word(overlap.kind)} over loading {_word(overlap.following)} {overlap.ratio:.2f}"
        for overlap in pass_layers.overlaps
        if overlap.ratio is not None
    ]
    means = f"; in the mean {', '.join(ratios)}" if ratios else "; no block is loaded"
    return f"{_word(pass_layers.phase)}, context {pass_layers.context}{means}"


def _draw_times(axes: "Axes", pairs: Sequence[_Pair], title: str) -> None:
    most = max(max(layer.compute, following.load) for layer, following in pairs)
    scale, unit = (1.0, "s") if most >= 1 else (1e3, "ms")
    loads, colours = [following.load for _, following in pairs], [_LOADED[following.kind] for _, following in pairs]
    axes.bar(range(len(pairs)), [load * scale for load in loads], width=0.86, color=colours, zorder=2)
    for kind in dict.fromkeys(layer.kind for layer, _ in pairs):
        points = [(place, layer.compute * scale) for place, (layer, _) in enumerate(pairs) if layer.kind == kind]
        axes.plot(
            *zip(*points, strict=True), "-o", color=_COMPUTED[kind], linewidth=1.5, markersize=_size(pairs), zorder=3
        )
    axes.set_ylim(0.0, 1.08 * most * scale)
    axes.set_ylabel(unit, fontsize=9.5, color=INK)
    axes.set_title(title, fontsize=9.5, loc="left", color=INK)
    _plain(axes, pairs)
    axes.set_xticklabels([])


def _size(pairs: Sequence[_Pair]) -> float:
    """Points of the marks: smaller where there are many."""
    return 3.8 if len(pairs) <= 60 else 2.4


def _draw_ratios(axes: "Axes", pairs: Sequence[_Pair]) -> None:
    """Compute over load around 1, logarithmic; nothing where nothing is loaded, at the edge what is off the scale."""
    shown = [(place, layer.kind, layer.compute / following.load) for place, (layer, following) in _loading(pairs)]
    inner = [ratio for _, kind, ratio in shown if ratio and kind not in ("embedding", "output")]
    limit = min(_MOST, 1.4 * max((max(ratio, 1 / ratio) for ratio in inner), default=2.0))
    axes.set_yscale("log")
    axes.set_ylim(1 / limit, limit)
    axes.axhline(1.0, color=INK, linewidth=1.0, linestyle=(0, (4, 3)), zorder=1)
    for place, kind, ratio in shown:
        inside = min(max(ratio, 1 / limit), limit)
        axes.plot(place, inside, "o", color=_COMPUTED[kind], markersize=_size(pairs), zorder=3, clip_on=False)
    axes.set_ylabel("ratio", fontsize=9.5, color=INK)
    axes.set_xlabel("block of the layer that computes", fontsize=9, color=INK)
    _plain(axes, pairs)
    _round(axes)


def _loading(pairs: Sequence[_Pair]) -> Iterator[tuple[int, _Pair]]:
    """Return the pairs whose second is loaded."""
    return ((place, pair) for place, pair in enumerate(pairs) if pair[1].load)


def _round(axes: "Axes") -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    top = axes.get_ylim()[1]
    ticks = (0.3, 0.5, 1, 2, 3) if top <= 4 else (0.3, 1, 3) if top <= 9 else (0.1, 1, 10)
    inner = [tick for tick in ticks if abs(log(tick)) < _INSIDE * log(top)]
    axes.yaxis.set_major_locator(FixedLocator(inner))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())


def _plain(axes: "Axes", pairs: Sequence[_Pair]) -> None:
    """Layers are named by their block, the embedding as it is."""
    axes.set_xlim(-0.7, len(pairs) - 0.3)
    places = list(_ticks(pairs))
    axes.set_xticks([place for place, _ in places], [name for _, name in places], fontsize=8.5)
    axes.grid(axis="y", color="#E6E6E6", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(color="#888888", labelcolor=INK, labelsize=8.5)
    for side in axes.spines.values():
        side.set(color="#888888", linewidth=0.8)


def _ticks(pairs: Sequence[_Pair]) -> Iterator[tuple[int, str]]:
    """(place, name) of every so many blocks' first layers."""
    starts: dict[int, int] = {}
    for place, (layer, _) in enumerate(pairs):
        if layer.layer is not None:
            starts.setdefault(layer.layer, place)
    step = next(step for step in (1, 2, 5, 10, 20, 50, 10**9) if len(starts) / step <= 24)
    yield from ((place, str(block)) for block, place in starts.items() if block % step == 0)


def _legend(figure: "Figure", passes: Sequence[PassLayers]) -> None:
    """Explain the colours of what is loaded anywhere, and of what computes."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    pairs = [pair for one_pass in passes for pair in pairwise(one_pass.layers)]
    loaded = dict.fromkeys(following.kind for _, following in pairs if following.load)
    computed = dict.fromkeys(layer.kind for layer, _ in pairs if layer.compute and layer.kind != "embedding")
    handles: list[Patch | Line2D] = [Patch(facecolor=_LOADED[kind], label=f"loading {_word(kind)}") for kind in loaded]
    handles += [
        Line2D([], [], color=_COMPUTED[kind], marker="o", markersize=3.8, label=f"computing {_word(kind)} before it")
        for kind in computed
    ]
    handles.append(Line2D([], [], color=INK, linestyle=(0, (4, 3)), label="perfect overlap"))
    figure.legend(handles=handles, loc="lower center", ncols=len(handles), fontsize=8.5, frameon=False)
