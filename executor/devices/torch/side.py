"""A sub-batch on its way through the layers of a PyTorch device."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from helmsman.executor._kernels import Event, Ragged
from helmsman.executor.devices.iterations import SubBatch
from helmsman.executor.devices.parts import of_kind
from helmsman.executor.devices.torch.cohort_rows import TorchJoining
from helmsman.executor.devices.torch.marks import Mark, Spans
from helmsman.executor.devices.torch.ragged_rows import RaggedRows
from helmsman.executor.devices.torch.ragged_stage import RaggedStage
from helmsman.executor.devices.torch.routed_blocks import RoutedBlocks
from helmsman.executor.devices.torch.serving_lanes import SENT, Crossing, Times, TorchLanes


class Side:
    """Sub-batch `number`; `joining`: cohorts' parts in it, by layer; `routed`: blocks whose experts are looked up. Rows
    at its end are of the host's requests."""

    def __init__(
        self,
        number: int,
        batch: SubBatch,
        joining: Sequence[TorchJoining],
        lanes: TorchLanes,
        routed: RoutedBlocks,
    ) -> None:
        stage, rows, self._ids, self._host, self._apart = batch
        self.number, self.stage = number, of_kind(stage, RaggedStage)
        self._joining, self._lanes, self._native, self._routed = joining, lanes, rows, routed
        self._rows = self._own = self._there(rows)
        self._here: TorchJoining | None = None
        for part in joining:
            if part.at is None:
                self._come(part)
        self._back: Event | None = None

    def embedded(self) -> NDArray[np.int32]:
        """int32 (rows,): tokens of the rows that begin with the embedding."""
        return np.asarray(self._ids, np.int32)[: self._rows.count]

    def linear(self, layer: int, spans: Spans) -> None:
        """Run what follows the attention of the layer before, or the embedding."""
        if layer > 0:
            self.last(layer - 1, spans)
            return
        self.stage.begin(self._rows)
        spans.end("ends")

    def append(self, layer: int, spans: Spans) -> Mark:
        """Up to what `append` leaves, or all of a layer without attention; then a cohort's rows are gone."""
        attends = self.stage.attends(layer)
        self._run(layer, f"{layer}.norm1", self.stage.turns(layer) if attends else self.stage.last_of(layer))
        if self._here is not None and not self._here.stays:
            self._here.leave(self._lanes, self.stage, layer)
            self._rows, self._here = self._own, None
        return spans.end(f"linear.{self.number}")

    def cross(self, layer: int, ready: Mark, moved: Sequence[Event], times: Times) -> None:
        """The host's share of a layer's attention."""
        apart, rows = self._apart, self._native
        if self._here is not None:
            apart, rows = self._here.apart, self._here.joint
        if apart is None:
            return
        assert self._host is not None, "rows of the host have a stage there"
        first, regions = rows.rows - apart.rows, self.stage.regions()
        at = {name: regions[name]["offset"] + first * regions[name]["stride"] for name in (*SENT, "attended")}
        crossing = Crossing(self.stage.workspace, at, self._host, apart)
        self._back = crossing.submit(self._lanes, layer, ready, moved, times)

    def attend(self, layer: int, spans: Spans) -> Mark:
        """The accelerator's share of a layer's attention."""
        if self.stage.attends(layer):
            self.stage.run(self._rows, self.stage.after(self.stage.turns(layer)), f"{layer}.attention")
        return spans.end("gpu_attention")

    def last(self, layer: int, spans: Spans) -> None:
        """Run all after the attention of a layer, to its end, once the host's share is back; a cohort may join."""
        for joining in self._joining:
            if joining.at == layer:
                self._enter(joining)
        if self._back is not None:
            self._back.wait()
            self._back = None
        spans.end(None)
        if self.stage.attends(layer):
            self._run(layer, self.stage.after(f"{layer}.attention"), self.stage.last_of(layer))
        spans.end(f"linear.{self.number}")

    def outputs(self) -> torch.Tensor:
        """f32 (n, hidden): hidden states from which tokens follow."""
        return self.stage.rows_of("hidden", self._rows.count)[self._rows.outputs]

    def _run(self, layer: int, first: str, last: str) -> None:
        self._routed.run(self.stage, self.number, self._rows, layer, first, last)

    def _enter(self, joining: TorchJoining) -> None:
        joining.enter(self.stage)
        if joining.joined:
            self._come(joining)

    def _come(self, joining: TorchJoining) -> None:
        """Its rows are behind those of the sub-batch from here on."""
        self._rows, self._here = self._there(joining.joint), joining

    def _there(self, rows: Ragged) -> RaggedRows:
        device = self.stage.workspace.bytes.device
        return RaggedRows.of(rows, np.asarray(self._ids, np.int32), self.stage.capacity, device)
