"""A device that PyTorch drives, as the executor knows devices."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np
import torch
from typing_extensions import Buffer as SupportsBuffer

from helmsman.executor._kernels import Buffer as HostBuffer
from helmsman.executor._kernels import Event
from helmsman.executor.devices.base import DeviceMemory, Lane, LinkSample
from helmsman.executor.devices.iterations import Driver, ExpertLookup, PassWeights
from helmsman.executor.devices.move_calls import ExpansionMove, Signals, Submit, Turn
from helmsman.executor.devices.parts import Buffer, Queue, Stage, of_kind
from helmsman.executor.devices.probe import PRODUCT, PRODUCT_TOKENS
from helmsman.executor.devices.specs import AnySpec
from helmsman.executor.devices.torch.buffers import TorchBuffer, TorchMemory, bytes_of
from helmsman.executor.devices.torch.compute import ComputeLane
from helmsman.executor.devices.torch.copies import CopyLane
from helmsman.executor.devices.torch.driver import driver_of
from helmsman.executor.devices.torch.expansion import expand, turn
from helmsman.executor.devices.torch.pinning import PinnedBuffers
from helmsman.executor.devices.torch.probe import copy_seconds, product_rate, read_rate
from helmsman.executor.devices.torch.ragged_stage import RaggedStage
from helmsman.executor.devices.torch.regions import regions_of
from helmsman.executor.devices.torch.stage import TorchStage
from helmsman.executor.devices.torch.turns import TorchTurns, TorchValues
from helmsman.schemas.formats import Precision, StoredFormat

LARGE_COPY = 64 << 20
"""Bytes of a copy that tells a link's rate."""
SMALL_COPY = 64
"""Bytes of a copy that tells its latency."""


class TorchDevice:
    """Computes from `memory` through PyTorch."""

    def __init__(self, name: str, memory: TorchMemory) -> None:
        self.name = name
        self.memory = memory
        self.cpus: tuple[int, ...] = ()
        self._lanes: list[ComputeLane] = []

    def open_queue(self) -> ComputeLane:
        """A lane on which it computes."""
        self._lanes.append(ComputeLane(self.memory.device))
        return self._lanes[-1]

    def expanding(self, queue: Queue, part: ExpansionMove | Turn, signals: Signals) -> Submit:
        """By operations of their own."""
        lane = of_kind(queue, ComputeLane)

        def submit(run: Callable[[int], None]) -> Submit:
            return lambda tokens, past: lane.submit_work(partial(run, past), signals.wait, signals.done, signals.times)

        if isinstance(part, Turn):
            return submit(partial(turn, part))
        return submit(lambda past: expand(part))

    def copy_pieces(
        self,
        queue: Queue,
        copies: Sequence[tuple[Buffer, SupportsBuffer]],
        wait: Sequence[Event] = (),
        done: Event | None = None,
        times: SupportsBuffer | None = None,
    ) -> None:
        """One after the other, on the stream that computes."""
        all_pieces = [(bytes_of(buffer), np.asarray(pieces, np.int64).reshape(-1, 3)) for buffer, pieces in copies]

        def work() -> None:
            for held, pieces in all_pieces:
                for to, begin, size in pieces.tolist():
                    held[to : to + size].copy_(held[begin : begin + size], non_blocking=True)

        of_kind(queue, ComputeLane).submit_work(work, wait, done, times)

    def open_lane(self, name: str, source: DeviceMemory | None, target: DeviceMemory | None) -> Lane:
        """A stream of its own for one direction of a link."""
        out, into = (
            memory.device if isinstance(memory, TorchMemory) else torch.device("cpu") for memory in (source, target)
        )
        sample = partial(LinkSample.of, partial(copy_seconds, out, into), LARGE_COPY, SMALL_COPY)
        return Lane(name, CopyLane(self.memory.device), sample)

    def pin(self, buffers: Iterable[Buffer]) -> PinnedBuffers:
        """Page-locked where it is a CUDA device."""
        return PinnedBuffers((buffer for buffer in buffers if isinstance(buffer, HostBuffer)), self.memory.device)

    def workspace_size(self, spec: AnySpec) -> int:
        """Bytes of scratch that a stage needs."""
        return regions_of(spec).size

    def stage(self, spec: AnySpec, workspace: Buffer, first_layer: int) -> TorchStage:
        """A stage over `workspace`."""
        if "sequences" in spec:
            return RaggedStage(spec, of_kind(workspace, TorchBuffer), first_layer)
        return TorchStage(spec, of_kind(workspace, TorchBuffer), first_layer)

    def values(self, stage: Stage) -> TorchValues:
        """Copies of what a stage leaves."""
        return TorchValues(of_kind(stage, TorchStage))

    def turns(self, queue: Queue, stage: Stage) -> TorchTurns:
        """Turns of a lane."""
        return TorchTurns(of_kind(stage, TorchStage), of_kind(queue, ComputeLane))

    def driver(self, weights: PassWeights | None, lookups: Sequence[ExpertLookup] = ()) -> Driver:
        """Streams of its own; no weights come but rows of a table, and experts that are looked up."""
        assert weights is None or not weights.operations, "checked with the places"
        return driver_of(lookups, None if weights is None else weights.table)

    def read_rate(self, pieces: Sequence[HostBuffer]) -> float:
        """Bytes/s at which it reads its memory now."""
        return read_rate(self.memory.device)

    def product_rate(self, fmt: StoredFormat, matrices: Sequence[HostBuffer], rounding: Precision) -> float:
        """FLOP/s of a product now, with a matrix of its own."""
        return product_rate(self.memory.device, fmt, *PRODUCT, PRODUCT_TOKENS)

    def time_operations(self, timed: bool) -> None:
        """Whether every operation of the next passes has a time of its own."""
        for lane in self._lanes:
            lane.timed = timed
