"""The lane on which a PyTorch device computes: ranges of a stage's operations, as graphs where the device has them."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from typing_extensions import Buffer as SupportsBuffer

from helmsman.executor._kernels import Buffer, Event
from helmsman.executor.torch_device.buffers import TorchBuffer
from helmsman.executor.torch_device.graphs import Graphs
from helmsman.executor.torch_device.lane import TorchLane
from helmsman.executor.torch_device.stage import TorchStage

if TYPE_CHECKING:
    from helmsman.executor._kernels import KvSpan


class ComputeLane(TorchLane):
    """Runs stages. `timed`: every operation on its own, with its own time; else ranges of a decode step as graphs,
    whose time their last operation has."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.timed = False
        self._graphs = Graphs(device)

    def run(
        self,
        stage: TorchStage,
        source: Buffer | TorchBuffer | None,
        target: Buffer | TorchBuffer | None,
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
        end, stop = len(stage.ops) if last is None else last, tokens if stop is None else stop
        taken = _Stamps(stamps, self.device, end - first)

        def work() -> None:
            taken.begin()
            for begin in range(start, stop, stage.chunk):
                count = min(stage.chunk, stop - begin)
                self._load(stage, source, first, (begin, count, tokens), past)
                self._compute(stage, first, end, (count, past + begin, begin + count == tokens), taken)
                self._store(stage, target, end, (begin, count, tokens))
            taken.finish()

        self.submit_work(work, wait, done)

    def attend(
        self,
        stage: TorchStage,
        block: int,
        spans: "Sequence[KvSpan]",
        first: bool,
        last: bool,
        tokens: int,
        past: int,
        times: SupportsBuffer | None = None,
        wait: Sequence[Event] = (),
        done: Event | None = None,
    ) -> None:
        """Like the native queue's: a part of the attention of a block (HELM-62, 63)."""
        self.submit_work(lambda: stage.attend(block, spans, first, last, tokens, past), wait, done, times)

    def _compute(self, stage: TorchStage, first: int, last: int, part: tuple[int, int, bool], taken: "_Stamps") -> None:
        tokens, past, ends = part
        graphs = self._graphs.available and tokens == 1 and stage.replays(first, last)
        if self.timed or not graphs:
            taken.rewind()
            stage.compute(first, last, tokens, past, ends, taken.add if self.timed else lambda: None)
        else:
            self._graphs.run(stage, first, last, past)

    def _load(
        self,
        stage: TorchStage,
        source: Buffer | TorchBuffer | None,
        first: int,
        part: tuple[int, int, int],
        past: int,
    ) -> None:
        """What a range reads beside its workspace, and where its tokens are."""
        begin, count, tokens = part
        if source is not None and stage.embeds(first):
            ids = _seen(source, torch.int32).view(-1)[: stage.batch * tokens].view(stage.batch, tokens)
            stage.feed(ids, slice(begin, begin + count), past + begin)
            return
        stage.place(past + begin)
        if source is not None:
            rows = _seen(source, torch.float32).view(-1)[: stage.batch * tokens * stage.width]
            stage.hidden(count).copy_(rows.view(stage.batch, tokens, -1)[:, begin : begin + count])

    def _store(
        self, stage: TorchStage, target: Buffer | TorchBuffer | None, last: int, part: tuple[int, int, int]
    ) -> None:
        """Choices, or the residual stream, to where the next reads them."""
        begin, count, tokens = part
        if target is None:
            return
        if stage.chooses(last):
            if begin + count == tokens:
                _seen(target, torch.int32)[: stage.batch].copy_(stage.taken())
            return
        rows, own = _seen(target, torch.float32)[: stage.batch * tokens * stage.width], stage.left(last)
        seen = rows.view(stage.batch, tokens, -1)[:, begin : begin + count]
        seen[..., own.start : own.stop].copy_(stage.hidden(count)[..., own.start : own.stop])


def _seen(buffer: Buffer | TorchBuffer, dtype: torch.dtype) -> torch.Tensor:
    """A buffer of this device or of the host as a vector."""
    if isinstance(buffer, TorchBuffer):
        return buffer.bytes.view(dtype)
    return torch.frombuffer(memoryview(buffer), dtype=dtype)


class _Stamps:
    """The start of a range and the end of each of its operations, in seconds; chunks add up."""

    def __init__(self, target: SupportsBuffer, device: torch.device, count: int) -> None:
        self._target = np.frombuffer(memoryview(target), np.float64)[: count + 1]
        self._device = device
        self._spent = np.zeros(count)
        self._at = 0
        self._begun = self._last = 0.0

    def begin(self) -> None:
        self._begun = self._last = time.monotonic()

    def rewind(self) -> None:
        self._at = 0

    def add(self) -> None:
        """The end of the next operation of a chunk."""
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()
        moment = time.monotonic()
        self._spent[self._at] += moment - self._last
        self._at, self._last = self._at + 1, moment

    def finish(self) -> None:
        """What no operation had goes to the last one."""
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()
        self._spent[-1] += time.monotonic() - self._last
        self._target[0] = self._begun
        self._target[1:] = self._begun + np.cumsum(self._spent)
