"""Texts that end a sequence: found as tokens arrive, and never shown."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from helmsman.executor.passes.generation import OnToken
from helmsman.executor.text.tokenizer import Text, TextStream


class StoppedStream:
    """A sequence's text as it grows, up to the first of `stops` that ends behind the first `least` tokens.

    What may be the beginning of one is held back until more is known."""

    def __init__(self, text: Text, stops: Sequence[str], least: int = 0) -> None:
        self._stream = TextStream(text)
        self._early = least
        self._stops = tuple(stops)
        self._held = ""
        self.ended = False

    def push(self, token: int) -> str:
        """The text to show after `token`."""
        if self.ended:
            return ""
        text = self._held + self._stream.push(token)
        shown = text if self._early > 0 else before_stop(text, self._stops)
        self._early -= 1
        self.ended = len(shown) < len(text)
        if not self.ended:
            shown = text[: len(text) - _beginning(text, self._stops)]
        self._held = "" if self.ended else text[len(shown) :]
        return shown

    def rest(self) -> str:
        """Return the text held back, once no more tokens come."""
        result, self._held = self._held, ""
        return result


def stop_watch(text: Text | None, stops: Sequence[str], sequences: int) -> OnToken:
    """Watches as many sequences for `stops`."""
    if text is None or not stops:
        return lambda _: None
    streams = [StoppedStream(text, stops) for _ in range(sequences)]

    def ended(chosen: NDArray[np.int32]) -> NDArray[np.bool_]:
        for stream, token in zip(streams, chosen.tolist(), strict=True):
            stream.push(token)
        return np.array([stream.ended for stream in streams])

    return ended


def before_stop(text: str, stops: Sequence[str]) -> str:
    """`text` up to the first of `stops` in it."""
    places = [place for stop in stops if (place := text.find(stop)) >= 0]
    return text[: min(places)] if places else text


def _beginning(text: str, stops: Sequence[str]) -> int:
    """Characters at the end of `text` that may be the beginning of a stop."""
    lengths = (length for stop in stops for length in range(min(len(stop) - 1, len(text)), 0, -1)
               if text.endswith(stop[:length]))  # fmt: skip
    return max(lengths, default=0)
