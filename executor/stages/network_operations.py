"""The operations of dense feed-forward networks in a stage, and those of what a layer has for every token."""

from collections.abc import Iterator

from helmsman.executor.devices.operations import AnyOperation
from helmsman.executor.stages.block_part import BlockPart
from helmsman.lowering.bodies.feed_forward import PLAIN
from helmsman.lowering.bodies.per_layer_input import LAYER_GATE, LAYER_OUT
from helmsman.lowering.row_values import layer_input_values
from helmsman.schemas.blocks.feed_forward import FeedForward, PerLayerInput
from helmsman.schemas.model import Model


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


def per_layer_input(model: Model, body: PerLayerInput, block: BlockPart) -> Iterator[AnyOperation]:
    """Yield the operations of a layer's own input: gated by hidden states as they are, and left at their width."""
    assert model.per_layer_table is not None, "a model of such layers has their table"
    width, hidden, rows = model.per_layer_table.width, model.hidden, block.part.layer_inputs()
    gate = block.product(LAYER_GATE, ["hidden"], LAYER_GATE, (width, hidden), activation=body.activation)
    gate["layer_inputs"], gate["width"], gate["at"] = rows, layer_input_values(model), block.layer * width
    yield gate
    yield block.product(LAYER_OUT, [LAYER_GATE], LAYER_OUT, (hidden, width))
