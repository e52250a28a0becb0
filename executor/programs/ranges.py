"""Operations of a stage in one piece: submitted whole, or cut where attention goes through windows of caches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from helmsman.executor._kernels import Event
from helmsman.executor.cache.pager import Pager, Reader, Submitted
from helmsman.executor.devices.move_calls import Submit
from helmsman.executor.devices.parts import Buffer, Queue, Stage
from helmsman.executor.passes.halves import WHOLE, TokenChunk


@dataclass(frozen=True)
class Range:
    """Operations `ops` of a stage, whose first block is `first_layer`, from `source` to `target`; between them hidden
    states stay where `hidden` says. `stamps` (ops + 1,): when the operations began and ended. `chunk`: of a pass's
    tokens only these."""

    queue: Queue
    stage: Stage
    first_layer: int
    ops: range
    source: Buffer | None
    hidden: Buffer | None
    target: Buffer | None
    stamps: NDArray[np.float64]
    chunk: TokenChunk = WHOLE

    def submit(self, waits: Sequence[Event], done: Event | None) -> Submit:
        """All of them at once."""
        run = self.part(self.ops.start, self.ops.stop)
        return lambda tokens, past: run(tokens, past, waits, done)

    def part(self, begin: int, end: int) -> Submitted:
        """Operations begin <= op < end of them."""
        queue, stage, times = (
            self.queue,
            self.stage,
            self.stamps[begin - self.ops.start : end - self.ops.start + 1].data,
        )
        chunk, source = self.chunk, self.source if begin == self.ops.start else self.hidden
        target = self.target if end == self.ops.stop else self.hidden

        def run(tokens: int, past: int, waits: Sequence[Event], done: Event | None) -> None:
            queue.run(stage, source, target, tokens, past, times, begin, end, *chunk.span(tokens), waits, done)

        return run


class PagedRange:
    """A range in which blocks attend through windows, (block, operation) each: submitted whole while all that they
    attend to is there, else cut at every attention. Beside it their pages leave."""

    def __init__(self, whole: Range, attention: Sequence[tuple[int, int]], pager: Pager) -> None:
        self._pager = pager
        self._layers = tuple(layer for layer, _ in attention)
        self._whole = (whole.part(whole.ops.start, whole.ops.stop),)
        self._pieces = tuple(self._cut(whole, attention))

    def submit(self, waits: Sequence[Event], done: Event | None) -> Submit:
        """Everything in order: the first piece waits, the last one signals."""

        def submit(tokens: int, past: int) -> None:
            calls = self._pieces if self._pager.streams else self._whole
            for number, call in enumerate(calls):
                last = done if number == len(calls) - 1 else None
                call(tokens, past, waits if number == 0 else (), last)
            for layer in self._layers:
                self._pager.evict(layer)

        return submit

    def _cut(self, whole: Range, attention: Sequence[tuple[int, int]]) -> Iterator[Submitted]:
        start, reader = whole.ops.start, Reader(whole.queue, whole.stage, whole.first_layer)
        for layer, op in attention:
            if start < op:
                yield whole.part(start, op)
            yield self._pager.attending(layer, reader)
            start = op + 1
        if start < whole.ops.stop:
            yield whole.part(start, whole.ops.stop)
