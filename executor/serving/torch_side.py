"""A sub-batch on its way through the layers of a PyTorch device."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
import torch

from helmsman.executor._kernels import Event, Ragged
from helmsman.executor.serving.torch_joining import TorchJoining
from helmsman.executor.serving.torch_lanes import SENT, Crossing, Times, TorchLanes
from helmsman.executor.torch_device.marks import Mark, Spans
from helmsman.executor.torch_device.ragged_rows import RaggedRows
from helmsman.executor.torch_device.ragged_stage import RaggedStage

if TYPE_CHECKING:
    from helmsman.executor._kernels import SubBatch


class Side:
    """Sub-batch `number`; `joining`: a cohort's part in it. Rows at its end are of the host's requests."""

    def __init__(self, number: int, batch: "SubBatch", joining: TorchJoining | None, lanes: TorchLanes) -> None:
        stage, rows, ids, self._host, self._apart = batch
        self.number, self.stage = number, cast(RaggedStage, stage)
        self._joining, self._lanes, self._native = joining, lanes, rows
        self._own = self._there(rows, ids)
        self._joint = self._own if joining is None else self._there(joining.joint, ids)
        self._rows = self._joint if joining is not None and joining.at is None else self._own
        self._back: Event | None = None

    def linear(self, layer: int, spans: Spans) -> None:
        """What follows the attention of the layer before, or the embedding."""
        if layer > 0:
            self.last(layer - 1, spans)
            return
        self.stage.run(self._rows, "embedding", "embedding")
        spans.end("ends")

    def append(self, layer: int, spans: Spans) -> Mark:
        """Up to what `append` leaves; then a cohort's rows are gone."""
        self.stage.run(self._rows, f"{layer}.norm1", f"{layer}.append")
        joining = self._joining
        if joining is not None and not joining.stays and self._rows is self._joint:
            joining.leave(self._lanes, self.stage, layer)
            self._rows = self._own
        return spans.end(f"linear.{self.number}")

    def cross(self, layer: int, ready: Mark, moved: Sequence[Event], times: Times) -> None:
        """The host's share of a layer's attention."""
        apart, rows = self._apart, self._native
        if self._joining is not None and self._joining.stays_at(layer):
            apart, rows = self._joining.apart, self._joining.joint
        if apart is None:
            return
        assert self._host is not None, "rows of the host have a stage there"
        first, regions = rows.rows - apart.rows, self.stage.regions()
        at = {name: regions[name]["offset"] + first * regions[name]["stride"] for name in (*SENT, "attended")}
        crossing = Crossing(self.stage.workspace, at, self._host, apart)
        self._back = crossing.submit(self._lanes, layer, ready, moved, times)

    def attend(self, layer: int, spans: Spans) -> Mark:
        """The accelerator's share of a layer's attention."""
        self.stage.run(self._rows, f"{layer}.attention", f"{layer}.attention")
        return spans.end("gpu_attention")

    def last(self, layer: int, spans: Spans) -> None:
        """From `o` to `down` of a layer, once the host's share is back; a cohort may join."""
        if self._joining is not None and self._joining.at == layer:
            self._enter(self._joining)
        if self._back is not None:
            self._back.wait()
            self._back = None
        spans.end(None)
        self.stage.run(self._rows, f"{layer}.o", f"{layer}.down")
        spans.end(f"linear.{self.number}")

    def outputs(self) -> torch.Tensor:
        """f32 (n, hidden): hidden states from which tokens follow."""
        return self.stage.rows_of("hidden", self._rows.count)[self._rows.outputs]

    def _enter(self, joining: TorchJoining) -> None:
        joining.enter(self.stage)
        if joining.joined:
            self._rows = self._joint

    def _there(self, rows: Ragged, ids: object) -> RaggedRows:
        device = self.stage.workspace.bytes.device
        return RaggedRows.of(rows, np.asarray(ids, np.int32), self.stage.capacity, device)
