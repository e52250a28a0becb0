"""An answer as its tokens arrive: text without broken characters, up to what ends it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from helmsman.executor.text.stopping import StoppedStream
from helmsman.executor.text.tokenizer import Text
from helmsman.service.inference.generation import Ended

Finish = Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class Piece:
    """The text that some tokens add; `finish` where nothing follows."""

    text: str
    tokens: tuple[int, ...]
    finish: Finish | None = None


class Reply:
    """One answer. Tokens after a stop was found, which the first `least` do not end with, are not part of it; a model
    without tokenizer has no text."""

    def __init__(self, text: Text | None, stops: Sequence[str], least: int = 0) -> None:
        self._stream = None if text is None else StoppedStream(text, stops, least)
        self.count = 0

    def push(self, tokens: Sequence[int], ended: Ended | None) -> Piece:
        """Return what `tokens` add, and where `ended` is stop or length, the rest."""
        taken, shown = [], []
        for token in tokens:
            taken.append(token)
            shown.append(self._shown(token))
            if self._stopped:
                break
        self.count += len(taken)
        finish = self._finish(ended)
        if finish is not None and self._stream is not None:
            shown.append(self._stream.rest())
        return Piece("".join(shown), tuple(taken), finish)

    def _shown(self, token: int) -> str:
        return "" if self._stream is None else self._stream.push(token)

    @property
    def _stopped(self) -> bool:
        return self._stream is not None and self._stream.ended

    def _finish(self, ended: Ended | None) -> Finish | None:
        if self._stopped or ended == "stop":
            return "stop"
        return "length" if ended == "length" else None
