"""Lowers what a table holds for a token and a layer: gated by the hidden state, and brought to its width."""

from collections.abc import Iterator

from helmsman.lowering.bodies.block_pass import BlockPass
from helmsman.lowering.operation import Operation
from helmsman.lowering.tensor import Tensor, matrix

LAYER_INPUTS = "layer_inputs"
"""The output that holds every layer's row of the table, joined with a projection of the token's embedding."""


def matrices(width: int, layer: int, hidden: int) -> Iterator[Tensor]:
    """Yield gate and output."""
    yield from matrix("layer_gate", layer, width, hidden)
    yield from matrix("layer_out", layer, hidden, width)


def operations(block: BlockPass, source: str) -> Iterator[Operation]:
    """Yield the operations that read `source`, in order."""
    yield block.linear("layer_gate", (source,))
    yield block.linear("layer_out", ("layer_gate", LAYER_INPUTS))
