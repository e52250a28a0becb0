"""A cohort of a PyTorch device: what it keeps between iterations, and how it goes on by a layer, as in
csrc/serving/cohort.h."""

from contextlib import suppress

import torch

from helmsman.executor._kernels import Event, Ragged
from helmsman.executor.devices.parts import Stage
from helmsman.executor.devices.torch.buffers import TorchBuffer
from helmsman.executor.devices.torch.copies import CopyLane
from helmsman.executor.devices.torch.marks import Mark
from helmsman.executor.devices.torch.ragged_stage import RaggedStage
from helmsman.executor.devices.torch.serving_lanes import Crossing, Times, TorchLanes

KEPT = ("hidden", "q", "k", "v", "attended")


class TorchCohort:
    """`kept`: of so many rows, hidden states first, then the other activations.

    What attention gives comes back on a lane of its own: the host's tasks may pass each other."""

    def __init__(self, stage: RaggedStage, host: Stage, kept: TorchBuffer, rows: int, rise: int) -> None:
        self.layer: int | None = None
        self._host, self._kept, self._rise = host, kept, rise
        self._outputs = CopyLane(kept.bytes.device)
        self._at: dict[str, int] = {}
        self._rows: dict[str, torch.Tensor] = {}
        offset = 0
        for name in KEPT:
            size = stage.regions()[name]["row_bytes"]
            self._at[name] = offset
            self._rows[name] = kept.part(offset, rows * size).view(torch.float32, rows, size // 4)
            offset += rows * size
        self._landed: Event | None = None
        self._times = Times()

    @staticmethod
    def size(stage: RaggedStage, rows: int) -> int:
        """Bytes of `kept`."""
        return rows * sum(stage.regions()[name]["row_bytes"] for name in KEPT)

    @property
    def landed(self) -> bool:
        """Whether nothing is under way."""
        return self._landed is None or self._landed.done

    @property
    def host_seconds(self) -> float:
        """Of the attention that landed last."""
        return self._times.seconds("cpu_attention")

    def wait(self) -> None:
        """Until nothing is."""
        if self._landed is not None:
            self._landed.wait()

    def reset(self) -> None:
        """Forget the token under way, which has landed, and what failed on its way back; or it has ended."""
        self.layer = self._landed = None
        with suppress(Exception):
            self._outputs.check()

    def enter(self, stage: RaggedStage, first: int, kept: torch.Tensor) -> None:
        """Rows `kept` (n,) of those under way, which have landed, become rows first, first + 1, ... of the stage.

        Raises what failed on their way back."""
        self._outputs.check()
        end = first + len(kept)
        for name in ("hidden", "attended"):
            stage.rows_of(name, end)[first:].copy_(self._rows[name][kept])

    def leave(self, lanes: TorchLanes, stage: RaggedStage, first: int, rows: Ragged, layer: int) -> None:
        """The stage's rows from `first` on leave, and their attention of `layer` begins."""
        for name in KEPT[:-1]:
            self._rows[name][: rows.rows].copy_(stage.rows_of(name, first + rows.rows)[first:])
        self._times = Times()
        crossing = Crossing(self._kept, self._at, self._host, rows, self._rise * layer)
        mine = lanes._replace(outputs=self._outputs)
        self._landed = crossing.submit(mine, layer, Mark(self._kept.bytes.device), (), self._times)
        self.layer = layer
