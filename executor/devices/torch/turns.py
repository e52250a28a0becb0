"""What the host does between operations of a PyTorch stage, in the turn of its lane."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from helmsman.executor._kernels import Event
from helmsman.executor.devices.parts import Buffer, Region
from helmsman.executor.devices.stage_turns import Numbers
from helmsman.executor.devices.torch.compute import ComputeLane
from helmsman.executor.devices.torch.stage import TorchStage

_NUMBER = 4
"""Bytes."""


@dataclass(frozen=True)
class TorchValues:
    """Values of a stage whose stream has come to them: they are copied to the host and back."""

    stage: TorchStage

    def read(self, region: Region, rows: int) -> Numbers:
        """Return a copy."""
        return self._values(region, rows).cpu().numpy()

    def write(self, region: Region, numbers: Numbers) -> None:
        """Copy them back."""
        self._values(region, len(numbers)).copy_(torch.from_numpy(numbers))

    def _values(self, region: Region, rows: int) -> torch.Tensor:
        begin, size = region["offset"], rows * region["stride"]
        values = self.stage.workspace.bytes[begin : begin + size].view(torch.int32)
        return values.view(rows, region["stride"] // _NUMBER)


@dataclass(frozen=True)
class TorchTurns(TorchValues):
    """Turns of `lane`, whose thread has waited for its stream before them."""

    lane: ComputeLane

    def call(self, function: Callable[[], object], done: Event | None) -> None:
        """Submit a function."""

        def work() -> None:
            function()

        self.lane.submit_work(work, (), done)

    def run(self, hidden: Buffer | None, tokens: int, past: int, ops: range, chunk: range) -> None:
        """Run operations on the stream of the turn."""
        stamps = np.zeros(len(ops) + 1)
        span = ops.start, ops.stop, chunk.start, chunk.stop
        self.lane.pass_of(self.stage, hidden, hidden, tokens, past, stamps.data, *span)()
