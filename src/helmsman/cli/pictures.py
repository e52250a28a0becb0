"""--plot: the pictures that commands draw; matplotlib is loaded only here, and only when asked for."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from helmsman.cli.output import write_bytes
from helmsman.cli.parser import Parser
from helmsman.schemas.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def add_plot_argument(parser: Parser, what: str) -> None:
    """--plot FILE."""
    parser.add_argument("--plot", type=Path, metavar="FILE.svg|png", help=f"draw {what}")


def check_plot_argument(args: argparse.Namespace) -> None:
    """Refuse a file that is no picture before anything is computed."""
    if args.plot is not None:
        from helmsman.analysis.plots.picture import image_format

        image_format(args.plot, "--plot")


def layers_drawn(text: str | None, count: int) -> range:
    """Return the layers that --layer names, `24` or `24-25`, of 0 <= l < count; by default one in the middle."""
    if text is None:
        return range(count // 2, count // 2 + 1)
    first, _, last = text.partition("-")
    if not all(part.isdecimal() and len(part) < 7 for part in (first, last or first)):
        raise UsageError("not a layer", field="--layer", value=text, remedy="write --layer 24 or --layer 24-25")
    result = range(int(first), int(last or first) + 1)
    if not result or result[-1] >= count:
        remedy = f"the layers are 0 to {count - 1}, the first before the last"
        raise UsageError("no such layers", field="--layer", value=text, remedy=remedy)
    return result


def write_picture(path: Path, figure: "Figure") -> None:
    """Write a figure in the format that the file's name asks for."""
    from helmsman.analysis.plots.picture import image, image_format

    content = image(figure, image_format(path, "--plot"))
    write_bytes(path, content)
