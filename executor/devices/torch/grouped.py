"""Matrices of equal parts of a value on a PyTorch device, such as those that every head of latent attention has."""

from dataclasses import dataclass

import torch

from helmsman.executor.devices.parts import of_kind
from helmsman.executor.devices.tensors import Linear
from helmsman.executor.devices.torch.buffers import TorchBuffer
from helmsman.executor.devices.torch.weights import PlainWeight, Weight, weight_of


@dataclass(frozen=True)
class GroupedWeights:
    """Matrices of (rows, columns), one for each part. `together`: (parts, columns, rows), where they are plain."""

    weights: tuple[Weight, ...]
    rows: int
    columns: int
    together: torch.Tensor | None

    def multiply(self, x: torch.Tensor, target: torch.Tensor) -> None:
        """Write the products of f32 x (n, parts, at least columns) to f32 `target` (n, parts, at least rows)."""
        taken, given = x[..., : self.columns], target[..., : self.rows]
        if self.together is not None:
            given.copy_(torch.bmm(taken.transpose(0, 1).to(self.together.dtype), self.together).transpose(0, 1))
            return
        for number, weight in enumerate(self.weights):
            product = torch.empty((len(x), self.rows), dtype=torch.float32, device=x.device)
            weight.multiply(taken[:, number].to(weight.factor), product)
            given[:, number] = product


def grouped_of(spec: Linear | None, parts: int, space: torch.Tensor) -> GroupedWeights | None:
    """Return the matrices whose rows follow each other in one; None where there is none."""
    if spec is None:
        return None
    held, columns, rows = of_kind(spec["weight"], TorchBuffer), spec["columns"], spec["rows"] // parts
    size, panels = held.size // parts, spec.get("panels", False)
    weights = tuple(
        weight_of(held.part(number * size, size), spec["format"], rows, columns, space, panels)
        for number in range(parts)
    )
    first = weights[0]
    together = None
    if isinstance(first, PlainWeight) and first.matrix.dim() == 2:
        together = held.view(first.matrix.dtype, parts, rows, columns).transpose(1, 2)
    return GroupedWeights(weights, rows, columns, together)
