"""Activations of a pass as tensors of the workspace, which is laid out as native stages have it."""

import torch

from helmsman.executor.devices.parts import Region
from helmsman.executor.devices.specs import StageSpec
from helmsman.executor.devices.torch.buffers import TorchBuffer
from helmsman.executor.devices.torch.regions import StageRegions


class Activations:
    """The activations of the sequences of a stage's batch, by name; every tensor is f32 and part of the workspace."""

    def __init__(self, spec: StageSpec, workspace: TorchBuffer, regions: StageRegions) -> None:
        self._spec = spec
        self._places = {name: _columns(workspace, region, regions.rows) for name, region in regions.at.items()}
        after = workspace.part(regions.logits, workspace.size - regions.logits)
        self.logits = after.view(torch.float32, regions.outputs, spec["vocab"])

    def rows(self, name: str, tokens: int) -> torch.Tensor:
        """(batch * tokens, width)."""
        return self._places[name][: self._spec["batch"] * tokens]

    def hidden(self, tokens: int) -> torch.Tensor:
        """(batch, tokens, hidden): the residual stream."""
        return self.rows("hidden", tokens).view(self._spec["batch"], tokens, -1)

    def heads(self, name: str, tokens: int) -> torch.Tensor:
        """(batch, tokens, heads, head_dim) of q, k, v or attended."""
        return self.rows(name, tokens).view(self._spec["batch"], tokens, -1, self._spec["head_dim"])

    def queries(self, tokens: int) -> torch.Tensor:
        """(batch, kv_heads, group * tokens, head_dim): the query heads of a group follow each other."""
        spec = self._spec
        q = self.heads("q", tokens).view(spec["batch"], tokens, spec["kv_heads"], -1, spec["head_dim"])
        return q.permute(0, 2, 3, 1, 4).reshape(spec["batch"], spec["kv_heads"], -1, spec["head_dim"])

    def attended(self, out: torch.Tensor, tokens: int) -> None:
        """Keep `out` (batch, kv_heads, group * tokens, head_dim) where attention leaves its output."""
        spec = self._spec
        heads = out.view(spec["batch"], spec["kv_heads"], -1, tokens, spec["head_dim"]).permute(0, 3, 1, 2, 4)
        self.rows("attended", tokens).copy_(heads.reshape(spec["batch"] * tokens, -1))

    def scores(self, tokens: int) -> torch.Tensor:
        """(batch, tokens, kv_heads, group, positions in whole panels)."""
        spec = self._spec
        shape = (spec["batch"], tokens, spec["kv_heads"], spec["heads"] // spec["kv_heads"], -1)
        return self.rows("scores", tokens).view(*shape)


def _columns(workspace: TorchBuffer, region: "Region", rows: int) -> torch.Tensor:
    """f32 (rows, width) of a region."""
    size = rows * region["stride"]
    return workspace.part(region["offset"], size).view(torch.float32, rows, region["stride"] // 4)
