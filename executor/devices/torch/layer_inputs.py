"""What layers read of every token of a pass beside hidden states, on a PyTorch device."""

from dataclasses import dataclass

import torch

from helmsman.executor.devices.torch.activations import Activations
from helmsman.executor.devices.torch.steps import LayerInputsStep, LayerTableStep


@dataclass(frozen=True)
class PassPart:
    """Tokens [begin, begin + count) of each of `batch` sequences that a pass advances by `tokens`; their rows are those
    of buffers that keep all tokens of a pass."""

    batch: int
    begin: int
    count: int
    tokens: int

    def of(self, rows: torch.Tensor) -> torch.Tensor:
        """Return (batch, count, width) of a buffer's rows (rows, width)."""
        own = rows[: self.batch * self.tokens].view(self.batch, self.tokens, -1)
        return own[:, self.begin : self.begin + self.count]

    def like(self, values: torch.Tensor) -> torch.Tensor:
        """Return rows (batch * count, width) of the workspace as (batch, count, width)."""
        return values.view(self.batch, self.count, -1)


def look_up_inputs(step: LayerTableStep, ids: torch.Tensor, part: PassPart) -> None:
    """Leave the rows of tokens (batch * count,) where layers read them."""
    part.of(step.inputs).copy_(part.like(step.table(ids)) * step.spec["scale"])


def join_inputs(step: LayerInputsStep, activations: Activations, part: PassPart) -> None:
    """Add a projection, normed layer by layer, to these rows."""
    assert step.weights is not None, "a norm of this stage"
    projected = activations.rows(step.spec["inputs"][0], part.count)
    parts = projected.view(len(projected), -1, step.spec["part"])
    normed = step.weights.of(parts, step.spec["norm"], step.spec["eps"]).flatten(1)
    part.of(step.inputs).add_(part.like(normed)).mul_(step.spec["scale"])
