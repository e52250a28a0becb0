"""Activations of a pass as tensors of the workspace, which is laid out as native stages have it."""

import torch

from helmsman.executor.devices.operations import HeadShape
from helmsman.executor.devices.parts import Region
from helmsman.executor.devices.specs import StageSpec
from helmsman.executor.devices.torch.buffers import TorchBuffer
from helmsman.executor.devices.torch.regions import StageRegions


class Activations:
    """The activations of the sequences of a stage's batch, by name; every tensor is f32 and part of the workspace.

    `layer`: whose operation is under way."""

    def __init__(self, spec: StageSpec, workspace: TorchBuffer, regions: StageRegions) -> None:
        self._batch = spec["batch"]
        self.layer: int | None = None
        self._places = {name: _columns(workspace, region, regions.rows) for name, region in regions.at.items()}
        after = workspace.part(regions.logits, workspace.size - regions.logits)
        self.logits = after.view(torch.float32, regions.outputs, spec["vocab"])

    def rows(self, name: str, tokens: int) -> torch.Tensor:
        """(batch * tokens, width)."""
        own = self._places.get(f"{self.layer}.{name}")
        return (self._places[name] if own is None else own)[: self._batch * tokens]

    def hidden(self, tokens: int) -> torch.Tensor:
        """(batch, tokens, hidden): the residual stream."""
        return self.rows("hidden", tokens).view(self._batch, tokens, -1)

    def heads(self, name: str, tokens: int, head_dim: int) -> torch.Tensor:
        """(batch, tokens, heads, head_dim) of q, k, v or attended."""
        return self.rows(name, tokens).view(self._batch, tokens, -1, head_dim)

    def queries(self, name: str, tokens: int, heads: HeadShape) -> torch.Tensor:
        """(batch, kv_heads, group * tokens, head_dim): the query heads of a group follow each other."""
        count, width = heads["kv_heads"], heads["head_dim"]
        q = self.heads(name, tokens, width).view(self._batch, tokens, count, -1, width)
        return q.permute(0, 2, 3, 1, 4).reshape(self._batch, count, -1, width)

    def attended(self, name: str, out: torch.Tensor, tokens: int, heads: HeadShape) -> None:
        """Keep `out` (batch, kv_heads, group * tokens, head_dim) where attention leaves its output."""
        parts = out.view(self._batch, heads["kv_heads"], -1, tokens, heads["head_dim"]).permute(0, 3, 1, 2, 4)
        self.rows(name, tokens).copy_(parts.reshape(self._batch * tokens, -1))

    def scores(self, name: str, tokens: int, heads: HeadShape) -> torch.Tensor:
        """(batch, tokens, kv_heads, group, positions in whole panels)."""
        shape = (self._batch, tokens, heads["kv_heads"], heads["heads"] // heads["kv_heads"], -1)
        return self.rows(name, tokens).view(*shape)


def _columns(workspace: TorchBuffer, region: "Region", rows: int) -> torch.Tensor:
    """f32 (rows, width) of a region."""
    size = rows * region["stride"]
    return workspace.part(region["offset"], size).view(torch.float32, rows, region["stride"] // 4)
