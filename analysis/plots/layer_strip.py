"""The layer strip: a column for every block, a row for each of its weights and caches; colour says where it lives,
stripes where it goes to be used."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from helmsman.analysis.plots.layer_units import HomeUse, Strip, UnitPart, strips, uses
from helmsman.analysis.plots.picture import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    RED,
    YELLOW,
    caption,
    lighter,
    new_figure,
)
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.plan import Plan
from helmsman.schemas.units import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

_COLOURS = {
    "vram": BLUE,
    "loopback": BLUE,
    "unified": GREEN,
    "dram": ORANGE,
    "optane": YELLOW,
    "cxl": PURPLE,
    "nvme": RED,
}
"""By kind of memory; further memories of a kind are lighter."""

_WIDTH = 13.0
_LEFT = 0.95
_RIGHT = 0.25
_ROW = 0.25
"""Inches of a row."""
_WIDEST = 0.55
"""Inches of a block where there are few."""
_TOP = 0.72
"""Inches above strips."""
_BETWEEN = 0.38
"""Inches between strips."""
_TICKS = 0.45
"""Inches below a strip."""
_LEGEND = 0.3
"""Inches of a line of the legend."""
_END = 0.34
"""Inches of embedding and head."""
_GAP = 0.08
"""Inches beside embedding and head."""
_KEYS = 3
"""Entries in a line of the legend."""
_WORDS = {"prefill": "prompts", "decode": "decode steps"}


@dataclass(frozen=True)
class Look:
    """How uses are drawn on one machine."""

    hardware: Hardware

    def colour(self, memory: str) -> str:
        """Return the colour of a memory."""
        own = self.hardware.memory(memory)
        alike = [other.name for other in self.hardware.memories if other.kind == own.kind]
        colour, place = _COLOURS[own.kind], alike.index(memory)
        return colour if place == 0 else lighter(colour, min(0.35 * place, 0.8))

    def stripes(self, use: HomeUse) -> str | None:
        """Return the colour of stripes: of the memory to which something is brought, or dark where another of the
        devices with this memory uses it; none where it is used at home by the first of them."""
        own = self.hardware.device(use.device).memory
        if own != use.home:
            return self.colour(own)
        devices = [device for device in self.hardware.devices if device.memory == own and device.kind != "cpu"]
        return INK if devices and devices[0].name != use.device else None

    def words(self, use: HomeUse) -> str:
        """For the legend."""
        if self.hardware.device(use.device).memory == use.home:
            return f"in {use.home}, used there by {use.device}"
        return f"in {use.home}, streamed to {use.device}"


def draw_layers(plan: Plan) -> "Figure":
    """Draw a strip for decode steps and one for prompts, or one for both; blocks from left to right."""
    shown, look = strips(plan), Look(plan.hardware)
    keys = list(dict.fromkeys(use for strip in shown for use in uses(strip)))
    strip_height = len(shown[0].rows) * _ROW
    height = _TOP + len(shown) * (_BETWEEN + strip_height + _TICKS) + -(-len(keys) // _KEYS) * _LEGEND + 0.1
    figure = new_figure(_WIDTH, height)
    for number, strip in enumerate(shown):
        low = height - _TOP - number * (_BETWEEN + strip_height + _TICKS) - _BETWEEN - strip_height
        _draw(figure, strip, look, plan.model.layers, low)
    _legend(figure, keys, look)
    name = plan.strategy.name
    caption(figure, plan.label if plan.label.startswith(name) else f"{name} {plan.label}", _subtitle(plan))
    return figure


def _subtitle(plan: Plan) -> str:
    used = [f"{format_bytes(use.used)} in {use.memory}" for use in plan.predicted.memory if use.used]
    work = plan.workload
    shape = f"{work.prompt_tokens} + {work.output_tokens} tokens, batch {work.shape}"
    return f"{plan.model.name} on {plan.hardware.name}: {shape}; {', '.join(used)}"


def _draw(figure: "Figure", strip: Strip, look: Look, layers: int, low: float) -> None:
    """The embedding, the blocks and the head, from `low` inches up."""
    width, height = figure.get_size_inches()
    room = width - _LEFT - _RIGHT - 2 * (_END + _GAP)
    wide, tall = min(room, layers * _WIDEST), len(strip.rows) * _ROW
    places = (_LEFT, _END), (_LEFT + _END + _GAP, wide), (_LEFT + _END + 2 * _GAP + wide, _END)
    first, blocks, last = (
        figure.add_axes((left / width, low / height, across / width, tall / height)) for left, across in places
    )
    for axes, name, parts in ((first, "embedding", strip.embedding), (last, "head", strip.head)):
        _frame(axes, 1, 1)
        _cell(axes, (0, 1), 0, parts, look)
        axes.set_xticks([0.9], [name], fontsize=8.5, ha="right")
    _blocks(blocks, strip, look, layers)
    first.set_yticks([(row + 0.5) / len(strip.rows) for row in range(len(strip.rows))], strip.rows, fontsize=9)
    first.set_title(f"{' and '.join(_WORDS[phase] for phase in strip.phases)}", fontsize=9.5, loc="left", color=INK)


def _blocks(axes: "Axes", strip: Strip, look: Look, layers: int) -> None:
    rows = len(strip.rows)
    _frame(axes, layers, rows)
    for stretch in strip.stretches:
        for row, parts in enumerate(stretch.parts):
            _cell(axes, (stretch.first, stretch.last), row, parts, look)
    axes.vlines(range(1, layers), 0, rows, color="white", linewidth=0.7 if layers < 60 else 0.4, zorder=3)
    axes.hlines(range(1, rows), 0, layers, color="white", linewidth=1.0, zorder=3)
    step = next(step for step in (1, 2, 5, 10, 20, 50, 10**9) if layers / step <= 24)
    named = range(0, layers, step)
    axes.set_xticks([layer + 0.5 for layer in named], [str(layer) for layer in named], fontsize=8.5)
    axes.set_xlabel("block", fontsize=8.5, color=INK, labelpad=1)


def _frame(axes: "Axes", across: int, down: int) -> None:
    axes.set_xlim(0, across)
    axes.set_ylim(down, 0)
    axes.set_yticks([])
    axes.tick_params(length=0, labelcolor=INK, pad=3)
    for side in axes.spines.values():
        side.set(color="#888888", linewidth=0.8)


def _cell(axes: "Axes", across: tuple[int, int], row: int, parts: Sequence[UnitPart], look: Look) -> None:
    """The parts of a thing one below the other, for all blocks that are alike."""
    for part in parts:
        corner = across[0], row + part.start
        axes.add_patch(_patch(corner, across[1] - across[0], part.stop - part.start, part.use, look))


def _patch(corner: tuple[float, float], width: float, height: float, use: HomeUse, look: Look) -> "Rectangle":
    from matplotlib.patches import Rectangle

    stripes = look.stripes(use)
    return Rectangle(
        corner,
        width,
        height,
        facecolor=look.colour(use.home),
        edgecolor=stripes or "none",
        hatch="////" if stripes else None,
        linewidth=0.0,
        zorder=2,
    )


def _legend(figure: "Figure", keys: Sequence[HomeUse], look: Look) -> None:
    """Every use that occurs, below the strips."""
    handles = [_patch((0, 0), 1, 1, use, look) for use in keys]
    names = [look.words(use) for use in keys]
    figure.legend(
        handles, names, loc="lower center", ncols=min(_KEYS, len(keys)), fontsize=8.5, frameon=False, handlelength=2.4
    )
