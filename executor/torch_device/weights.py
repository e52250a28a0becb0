"""A stage's weights as tensors: matrices row after row, or in the panels in which they come over a link."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from helmsman.executor.torch_device.buffers import dtype_of, held_in

if TYPE_CHECKING:
    from helmsman.executor._kernels import Linear, Norm

PANEL = 16
"""Rows that are interleaved in what the host packs."""


@dataclass(frozen=True)
class TorchLinear:
    """Rows [first, first + rows) of a layer: `matrix` (rows, columns), or panels (ceil(rows / 16), columns, 16).

    The product reads panels as they are: a batch of narrow column-major matrices."""

    matrix: torch.Tensor
    rows: int
    first: int
    bias: torch.Tensor | None

    def times(self, x: torch.Tensor) -> torch.Tensor:
        """(n, rows) in f32 of x (n, columns)."""
        x = x.to(self.matrix.dtype)
        if self.matrix.dim() == 2:
            found = torch.matmul(x, self.matrix.t())
        else:
            found = torch.matmul(x, self.matrix).transpose(0, 1).reshape(x.shape[0], -1)[:, : self.rows]
        return found.float() if self.bias is None else found.float() + self.bias


@dataclass(frozen=True)
class TorchNorm:
    """Scale and, for layer norms, shift in f32."""

    weight: torch.Tensor
    bias: torch.Tensor | None

    def of(self, x: torch.Tensor, kind: str, eps: float) -> torch.Tensor:
        """The norm of the last dimension of f32 `x`."""
        if kind == "layer":
            return torch.nn.functional.layer_norm(x, x.shape[-1:], self.weight, self.bias, eps)
        scaled = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * self.weight
        return scaled if self.bias is None else scaled + self.bias


def linear_of(spec: "Linear | None") -> TorchLinear | None:
    """A matrix of a stage. Raises UsageError for a format that PyTorch does not multiply."""
    if spec is None:
        return None
    fmt, rows, columns = spec["format"], spec["rows"], spec["columns"]
    panels = spec.get("panels", False)
    shape = (-(-rows // PANEL), columns, PANEL) if panels else (rows, columns)
    return TorchLinear(
        held_in(spec["weight"]).view(dtype_of(fmt), *shape), rows, spec.get("first", 0), _bias(spec, rows)
    )


def norm_of(spec: "Norm | None", width: int) -> TorchNorm | None:
    """A norm over `width` values."""
    if spec is None:
        return None
    bias = spec["bias"]
    shift = None if bias is None else held_in(bias).view(torch.float32, width)
    return TorchNorm(held_in(spec["weight"]).view(torch.float32, width), shift)


def _bias(spec: "Linear", rows: int) -> torch.Tensor | None:
    return None if spec["bias"] is None else held_in(spec["bias"]).view(torch.float32, rows)
