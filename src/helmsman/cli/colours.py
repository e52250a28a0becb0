"""Colours on terminals."""

import os
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from helmsman.planner.words.plan_picture import Paint

_CODES = {
    "gpu": "34",
    "cpu": "33",
    "shared": "35",
    "streamed": "36",
    "weights": "36",
    "kv": "35",
    "buffers": "33",
    "error": "1;31",
    "warning": "1;33",
}
"""Of what is painted, how terminals are told its colour."""


def paint_for(stream: TextIO) -> "Paint":
    """Colours where `stream` is a terminal that has them and NO_COLOR is not set; where FORCE_COLOR is, anywhere."""
    forced = os.environ.get("FORCE_COLOR", "") not in ("", "0")
    terminal = stream.isatty() and os.environ.get("TERM") != "dumb"
    coloured = (forced or terminal) and not os.environ.get("NO_COLOR")
    return _painted if coloured else lambda _, text: text


def _painted(what: str, text: str) -> str:
    return f"\x1b[{_CODES[what]}m{text}\x1b[0m" if text and what in _CODES else text
