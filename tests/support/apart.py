"""Texts of a picture: none stands on another, and none leaves the picture."""

from itertools import combinations

from matplotlib.figure import Figure
from matplotlib.text import Text


def texts(figure: Figure) -> list[Text]:
    shown = [text for axes in figure.axes for text in (*axes.texts, axes.xaxis.label, axes.yaxis.label)]
    ticks = []
    for axis in (axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)):
        low, high = sorted(axis.get_view_interval())
        ticks += [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
    return [text for text in (*figure.texts, *shown, *ticks) if text.get_text() and text.get_visible()]


def check_apart(figure: Figure) -> None:
    """No text stands on another, and none leaves the picture."""
    figure.canvas.draw()
    boxes = [(text, text.get_window_extent()) for text in texts(figure)]
    inside = [(text, box) for text, box in boxes if box.width > 0]
    for (one, first), (other, second) in combinations(inside, 2):
        assert not first.overlaps(second), (one.get_text(), other.get_text())
    width, height = figure.canvas.get_width_height()
    for text, box in inside:
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height, text.get_text()
