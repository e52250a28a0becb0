"""Lowers a gated convolution over a few tokens."""

from collections.abc import Iterator

from helmsman.lowering.bodies.block_pass import BlockPass
from helmsman.lowering.bodies.recurrent import convolution
from helmsman.lowering.operation import Operation
from helmsman.lowering.tensor import Tensor, matrix
from helmsman.schemas.blocks.recurrent import ShortConvolution


def matrices(body: ShortConvolution, layer: int, hidden: int) -> Iterator[Tensor]:
    """Yield the projections and the taps, in order of use."""
    yield from matrix("conv_in", layer, 3 * hidden, hidden, body.bias)
    yield Tensor("conv.weight", "conv", layer, (hidden, body.taps), exact=True)
    if body.bias:
        yield Tensor("conv.bias", "conv", layer, (hidden,))
    yield from matrix("conv_out", layer, hidden, hidden, body.bias)


def operations(body: ShortConvolution, block: BlockPass, source: str) -> Iterator[Operation]:
    """Yield the operations that read `source`, in order."""
    hidden = block.model.hidden
    yield block.linear("conv_in", (source,))
    yield convolution(block, "conv", ("conv_in",), hidden, body.taps)
    yield block.linear("conv_out", ("conv",))
