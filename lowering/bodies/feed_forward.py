"""Lowers a dense feed-forward network."""

from collections.abc import Iterator

from helmsman.lowering.bodies.block_pass import BlockPass
from helmsman.lowering.operation import Operation
from helmsman.lowering.tensor import Tensor, matrix
from helmsman.schemas.blocks.feed_forward import FeedForward

PLAIN = ""
"""Before the names of a block's own network."""

SHARED = "shared_"
"""Before the names of the network that every token goes through beside its experts."""


def matrices(body: FeedForward, layer: int, hidden: int, prefix: str = PLAIN) -> Iterator[Tensor]:
    """Yield gate (where there is one), up and down."""
    if body.gated:
        yield from matrix(f"{prefix}gate", layer, body.width, hidden, body.bias)
    yield from matrix(f"{prefix}up", layer, body.width, hidden, body.bias)
    yield from matrix(f"{prefix}down", layer, hidden, body.width, body.bias)


def operations(body: FeedForward, block: BlockPass, source: str, prefix: str = PLAIN) -> Iterator[Operation]:
    """Yield the operations that read `source`, in order."""
    gate, up, down = (f"{prefix}{name}" for name in ("gate", "up", "down"))
    if body.gated:
        yield block.linear(gate, (source,))
    yield block.linear(up, (source, gate) if body.gated else (source,))
    yield block.linear(down, (up,))
