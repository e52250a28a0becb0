"""The lane on which a PyTorch device computes: ranges of a stage's operations, as graphs where the device has them."""

import time
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from typing_extensions import Buffer as SupportsBuffer

from helmsman.executor._kernels import Event
from helmsman.executor.devices.parts import Buffer, KvSpan, Stage, of_kind
from helmsman.executor.devices.torch.buffers import bytes_of
from helmsman.executor.devices.torch.graphs import Graphs
from helmsman.executor.devices.torch.lane import TorchLane, Work
from helmsman.executor.devices.torch.marks import Mark
from helmsman.executor.devices.torch.operation_times import OperationTimes
from helmsman.executor.devices.torch.positions import BUCKET
from helmsman.executor.devices.torch.stage import TorchStage


class ComputeLane(TorchLane):
    """Runs stages, ranges of a decode step as graphs. `timed`: every operation has a time of its own, else the last one
    of a range has all of it."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.timed = False
        self._graphs = Graphs(device)
        self._operations = OperationTimes()

    def run(
        self,
        stage: Stage,
        source: Buffer | None,
        target: Buffer | None,
        tokens: int,
        past: int,
        stamps: SupportsBuffer,
        first: int = 0,
        last: int | None = None,
        start: int = 0,
        stop: int | None = None,
        wait: Sequence[Event] = (),
        done: Event | None = None,
    ) -> None:
        """Like the native queue's: operations [first, last) of a pass, chunk by chunk of its tokens [start, stop)."""
        mine = of_kind(stage, TorchStage)
        end, stop = len(mine.ops) if last is None else last, tokens if stop is None else stop
        self.submit_work(self.pass_of(mine, source, target, tokens, past, stamps, first, end, start, stop), wait, done)

    def pass_of(
        self,
        stage: TorchStage,
        source: Buffer | None,
        target: Buffer | None,
        tokens: int,
        past: int,
        stamps: SupportsBuffer,
        first: int,
        end: int,
        start: int,
        stop: int,
    ) -> Work:
        """Return what `run` does in its turn."""
        taken = _Stamps(stamps, self.device, end - first)

        def work() -> None:
            taken.begin()
            for begin in range(start, stop, stage.chunk):
                count = min(stage.chunk, stop - begin)
                self._load(stage, source, first, (begin, count, tokens), past)
                self._compute(stage, first, end, (count, past + begin, begin + count == tokens), taken)
                self._store(stage, target, end, (begin, count, tokens))
            taken.finish()

        return work

    def attend(
        self,
        stage: Stage,
        block: int,
        spans: Sequence[KvSpan],
        first: bool,
        last: bool,
        tokens: int,
        past: int,
        times: SupportsBuffer | None = None,
        wait: Sequence[Event] = (),
        done: Event | None = None,
    ) -> None:
        """Like the native queue's: a part of the attention of a block (HELM-62, 63)."""
        mine = of_kind(stage, TorchStage)
        self.submit_work(lambda: mine.attend(block, spans, first, last, tokens, past), wait, done, times)

    def _compute(self, stage: TorchStage, first: int, last: int, part: tuple[int, int, bool], taken: "_Stamps") -> None:
        tokens, past, ends = part
        captured = self._graphs.available and tokens == 1 and stage.replays(first, last)
        key = id(stage), first, last, tokens, ends, past // BUCKET if tokens == 1 else past
        if self.timed and not self._operations.known(key):
            marks = self._graphs.run_marked(key, stage, past) if captured else self._marked(stage, first, last, part)
            if marks:
                self._operations.keep(key, marks)
        elif captured:
            self._graphs.run(key, stage, past)
        else:
            stage.compute(first, last, tokens, past, ends)
        taken.add(self._operations.of(key, last - first))

    def _marked(self, stage: TorchStage, first: int, last: int, part: tuple[int, int, bool]) -> list[Mark]:
        """Compute, with a mark before the first operation and after each."""
        marks = [Mark(self.device)]
        stage.compute(first, last, *part, after=lambda: marks.append(Mark(self.device)))
        return marks

    def _load(
        self,
        stage: TorchStage,
        source: Buffer | None,
        first: int,
        part: tuple[int, int, int],
        past: int,
    ) -> None:
        """Bring what a range reads beside its workspace to `stage`, and tell it where its tokens are."""
        begin, count, tokens = part
        if source is not None and stage.embeds(first):
            ids = bytes_of(source).view(torch.int32).view(-1)[: stage.batch * tokens].view(stage.batch, tokens)
            stage.feed(ids, slice(begin, begin + count), past + begin)
            return
        stage.place(past + begin, begin, tokens)
        if source is not None:
            rows = bytes_of(source).view(torch.float32).view(-1)[: stage.batch * tokens * stage.width]
            stage.hidden(count).copy_(rows.view(stage.batch, tokens, -1)[:, begin : begin + count])

    def _store(self, stage: TorchStage, target: Buffer | None, last: int, part: tuple[int, int, int]) -> None:
        """Choices, or the residual stream, to where the next reads them."""
        begin, count, tokens = part
        if target is None:
            return
        if stage.chooses(last):
            if begin + count == tokens:
                bytes_of(target).view(torch.int32)[: stage.batch].copy_(stage.taken())
            return
        rows, own = bytes_of(target).view(torch.float32)[: stage.batch * tokens * stage.width], stage.left(last)
        seen = rows.view(stage.batch, tokens, -1)[:, begin : begin + count]
        seen[..., own.start : own.stop].copy_(stage.hidden(count)[..., own.start : own.stop])


class _Stamps:
    """The start of a range and the end of each of its operations, in seconds, as far as it is known what part of the
    range's time each takes; chunks add up."""

    def __init__(self, target: SupportsBuffer, device: torch.device, count: int) -> None:
        self._target = np.frombuffer(memoryview(target), np.float64)[: count + 1]
        self._device = device
        self._parts = np.zeros(count)
        self._begun = 0.0

    def begin(self) -> None:
        self._begun = time.monotonic()

    def add(self, seconds: NDArray[np.float64]) -> None:
        """Of the operations of a chunk."""
        self._parts += seconds

    def finish(self) -> None:
        """Divide the time that all chunks took; it is the last operation's while none has a part."""
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()
        if not self._parts.any():
            self._parts[-1] = 1.0
        spent = (time.monotonic() - self._begun) * self._parts / self._parts.sum()
        self._target[0] = self._begun
        self._target[1:] = self._begun + np.cumsum(spent)
