"""Figures as SVG or PNG bytes, the same bytes for the same figure; and the colours that all pictures share.

Figures are made without pyplot: nothing is kept between pictures, and no window system is touched."""

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from helmsman.schemas.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

ImageFormat = Literal["svg", "png"]
FORMATS: dict[str, ImageFormat] = {".svg": "svg", ".png": "png"}
DPI = 150

ORANGE = "#E69F00"
SKY = "#56B4E9"
GREEN = "#009E73"
YELLOW = "#F0E442"
BLUE = "#0072B2"
RED = "#D55E00"
PURPLE = "#CC79A7"
GREY = "#999999"
INK = "#222222"
"""Okabe and Ito's palette (jfly.uni-koeln.de/color): told apart with every kind of colour vision."""


def image_format(path: Path, option: str) -> ImageFormat:
    """Return the format that the suffix of `path` asks for. Raises UsageError naming `option` for another suffix."""
    try:
        return FORMATS[path.suffix.lower()]
    except KeyError:
        remedy = "end the name in .svg or .png"
        raise UsageError("a picture is SVG or PNG", field=option, value=str(path), remedy=remedy) from None


def image(figure: "Figure", kind: ImageFormat) -> bytes:
    """`figure` in its own size; no date, no random names, letters as outlines, so that it looks the same anywhere."""
    import matplotlib as mpl

    stream = BytesIO()
    with mpl.rc_context({"svg.hashsalt": "helm", "svg.fonttype": "path"}):
        metadata = {"svg": {"Date": None, "Creator": "Helm"}, "png": {"Software": "Helm"}}[kind]
        figure.savefig(stream, format=kind, dpi=DPI, metadata=metadata)
    return stream.getvalue()


def new_figure(width: float, height: float) -> "Figure":
    """Return an empty figure of so many inches; its texts can be measured, in its pixels, before it is drawn."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def caption(figure: "Figure", title: str, subtitle: str) -> None:
    """Two lines at the top, 0.7 inches; letters of a long line get smaller until it fits."""
    height = figure.get_size_inches()[1]
    _line(figure, 1 - 0.13 / height, title, 12.0, INK, "bold")
    _line(figure, 1 - 0.42 / height, subtitle, 9.5, "#555555", "normal")


def _line(figure: "Figure", top: float, text: str, size: float, ink: str, weight: str) -> None:
    width = figure.get_size_inches()[0]
    line = figure.text(0.2 / width, top, text, fontsize=size, weight=weight, va="top", color=ink, parse_math=False)
    wide = line.get_window_extent().width / figure.dpi
    line.set_fontsize(min(size, size * (width - 0.4) / wide))


def dress(axes: "Axes", across: str, up: str) -> None:
    """Names of both axes, a faint grid, and lines that stay behind what is drawn."""
    axes.set_xlabel(across, fontsize=9.5, color=INK)
    axes.set_ylabel(up, fontsize=9.5, color=INK)
    axes.grid(color="#E6E6E6", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=9, color="#888888", labelcolor=INK)
    for side in axes.spines.values():
        side.set(color="#888888", linewidth=0.8)


def dress_bars(axes: "Axes", across: str) -> None:
    """Name the horizontal axis of lying bars, with a faint grid behind them and lines at the left and at the bottom."""
    axes.set_xlabel(across, fontsize=9.5, color=INK)
    axes.set_yticks([])
    axes.grid(axis="x", color="#E6E6E6", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.tick_params(axis="x", labelsize=9, color="#888888", labelcolor=INK)
    for name, side in axes.spines.items():
        side.set(color="#888888", linewidth=0.8, visible=name in ("left", "bottom"))


def by_powers(axis: "Axis") -> None:
    """Ticks of a logarithmic axis at 1, 2 and 5 of every power of ten, as plain numbers."""
    from matplotlib.ticker import LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def lighter(colour: str, share: float = 0.62) -> str:
    """`colour` mixed with `share` of white."""
    parts = (int(colour[at : at + 2], 16) for at in (1, 3, 5))
    return "#" + "".join(f"{round(part + (255 - part) * share):02X}" for part in parts)


def ink_on(colour: str) -> str:
    """Black or white, whichever is read more easily on `colour` (relative luminance, WCAG 2.1)."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "#FFFFFF" if 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.05 else "#000000"
