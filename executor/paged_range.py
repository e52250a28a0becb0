"""Operations of a stage in one piece, of which attention goes through windows of caches."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from helmsman.executor._kernels import Event
from helmsman.executor.pager import Pager, Reader

Call = Callable[[int, int, Sequence[Event], Event | None], None]
"""What submits something for so many tokens on top of a past, after some events and before another."""


@dataclass(frozen=True)
class PagedRange:
    """Submitted whole while all that is attended to is in the window, else cut at every attention (`pieces`).

    `layers`: the blocks whose pages leave beside it."""

    pager: Pager
    layers: tuple[int, ...]
    whole: Call
    pieces: tuple[Call, ...]
    waits: Sequence[Event]
    done: Event | None

    def submit(self, tokens: int, past: int) -> None:
        """Everything, in order; the first waits, the last signals."""
        calls = self.pieces if self.pager.streams else (self.whole,)
        for number, call in enumerate(calls):
            call(tokens, past, self.waits if number == 0 else (), self.done if number == len(calls) - 1 else None)
        for layer in self.layers:
            self.pager.evict(layer)


def pieces(
    ops: range, attention: Sequence[tuple[int, int]], pager: Pager, reader: Reader, run: Callable[[int, int], Call]
) -> Iterator[Call]:
    """What is between attentions, and these: (block, which operation) of `ops` each; `run` submits operations."""
    start = ops.start
    for layer, op in attention:
        if start < op:
            yield run(start, op)
        yield _attend(pager, layer, reader)
        start = op + 1
    if start < ops.stop:
        yield run(start, ops.stop)


def _attend(pager: Pager, layer: int, reader: Reader) -> Call:
    return lambda tokens, past, waits, done: pager.attend(layer, reader, tokens, past, waits, done)
