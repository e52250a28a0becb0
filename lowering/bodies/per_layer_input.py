"""Lowers what a table holds for a token and a layer: gated by the hidden state, and brought to its width."""

from collections.abc import Iterator

from helmsman.lowering.bodies.block_pass import BlockPass
from helmsman.lowering.operation import Operation
from helmsman.lowering.tensor import Tensor, matrix

LAYER_INPUTS = "layer_inputs"
"""The output that holds every layer's row of the table, joined with a projection of the token's embedding."""

LAYER_TABLE = "layer_table"
"""The lookup of what every layer adds for a token."""

LAYER_PROJECTION = "layer_projection"
"""The projection of a token's embedding that joins it."""

LAYER_NORM = "layer_projection_norm"
"""The norm of that, layer by layer, and the sum with the table's rows."""

LAYER_GATE, LAYER_OUT = "layer_gate", "layer_out"
"""The products of a block with its inputs: of the hidden state, which its own input multiplies, and back."""


def matrices(width: int, layer: int, hidden: int) -> Iterator[Tensor]:
    """Yield gate and output."""
    yield from matrix(LAYER_GATE, layer, width, hidden)
    yield from matrix(LAYER_OUT, layer, hidden, width)


def operations(block: BlockPass, source: str) -> Iterator[Operation]:
    """Yield the operations that read `source`, in order."""
    yield block.linear(LAYER_GATE, (source, LAYER_INPUTS))
    yield block.linear(LAYER_OUT, (LAYER_GATE,))
