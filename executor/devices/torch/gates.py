"""The functions between the matrices of a network on a PyTorch device."""

from collections.abc import Callable

import torch

from helmsman.schemas.blocks.feed_forward import Activation

ACTIVATIONS: dict[Activation, Callable[[torch.Tensor], torch.Tensor]] = {
    "silu": torch.nn.functional.silu,
    "relu": torch.relu,
    "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "relu2": lambda x: torch.relu(x).square(),
}
"""The activations that are functions of one value: of the gate, or of what has no gate."""
SWIGLU_SLOPE = 1.702
"""The factor of gpt-oss's gate within its sigmoid."""


def gated(kind: Activation, limit: float | None, gate: torch.Tensor | None, up: torch.Tensor) -> torch.Tensor:
    """Return activation(gate) * up, or activation(up) without a gate; `limit` cuts gate above, and up both ways."""
    if limit is not None:
        gate, up = None if gate is None else gate.clamp(max=limit), up.clamp(-limit, limit)
    if kind == "swiglu_oai":
        assert gate is not None, "an activation of gated networks"
        return gate * torch.sigmoid(SWIGLU_SLOPE * gate) * (up + 1)
    return ACTIVATIONS[kind](up) if gate is None else ACTIVATIONS[kind](gate) * up
