"""The operations of dense feed-forward networks in a stage."""

from collections.abc import Iterator

from helmsman.executor.devices.operations import AnyOperation
from helmsman.executor.stages.block_part import BlockPart
from helmsman.lowering.bodies.feed_forward import PLAIN
from helmsman.schemas.blocks.feed_forward import FeedForward


def feed_forward(
    hidden: int, body: FeedForward, block: BlockPart, prefix: str = PLAIN, target: str = "hidden"
) -> Iterator[AnyOperation]:
    """Yield the operations of a dense network, whose outcome joins the residual stream, or is left in `target`."""
    gate, up, down = (f"{prefix}{name}" for name in ("gate", "up", "down"))
    inputs = ["normed"]
    if body.gated:
        yield block.product(gate, ["normed"], gate, (body.width, hidden), factor=body.gate_scale)
        inputs = ["normed", gate]
    yield block.product(up, inputs, up, (body.width, hidden), activation=body.activation)
    yield block.product(down, [up], target, (hidden, body.width))
