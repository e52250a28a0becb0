"""Lowers a Mamba-2 mixer: one projection, a convolution over time, the scan of a state per head, a gated norm."""

from collections.abc import Iterator

from helmsman.lowering.bodies.block_pass import BlockPass
from helmsman.lowering.bodies.recurrent import convolution, recurrence
from helmsman.lowering.operation import Operation
from helmsman.lowering.tensor import Tensor, matrix, vector
from helmsman.schemas.blocks.recurrent import StateSpace

CHUNK = 256
"""Tokens of a prompt that the scan takes together."""


def matrices(body: StateSpace, layer: int, hidden: int) -> Iterator[Tensor]:
    """Yield the projections, in order of use."""
    yield from matrix("scan_in", layer, body.inner + body.channels + body.heads, hidden, body.bias)
    yield Tensor("scan_conv.weight", "scan_conv", layer, (body.channels, body.taps), exact=True)
    if body.conv_bias:
        yield Tensor("scan_conv.bias", "scan_conv", layer, (body.channels,))
    yield from matrix("scan_out", layer, hidden, body.inner, body.bias)


def vectors(body: StateSpace, layer: int) -> Iterator[Tensor]:
    """Yield rates, offsets of the time step, what passes by the state, and the norm of the outcome."""
    for name in ("scan_rate", "scan_offset", "scan_pass"):
        yield vector("scan", layer, body.heads, name)
    if body.norm is not None:
        yield vector("scan_norm", layer, body.inner)


def operations(body: StateSpace, block: BlockPass, source: str) -> Iterator[Operation]:
    """Yield the operations that read `source`, in order."""
    yield block.linear("scan_in", (source,))
    yield convolution(block, "scan_conv", ("scan_in",), body.channels, body.taps)
    yield recurrence(
        block,
        "scan",
        ("scan_conv", "scan_in"),
        flops=_flops(body, block.iteration.tokens),
        state=body.state_elements,
        values_in=body.channels + body.heads,
        values_out=body.inner,
    )
    norm = block.norm("scan_norm", ("scan", "scan_in"), body.inner)
    yield norm._replace(flops=2 * norm.flops, activation_bytes=3 * norm.activation_bytes // 2)
    yield block.linear("scan_out", ("scan_norm",))


def _flops(body: StateSpace, new: int) -> int:
    """Return FLOPs of the scan for one of `new` tokens of a sequence: token by token, or by chunks."""
    heads, width, state = body.heads, body.head_dim, body.state
    if new == 1:
        return 5 * heads * width * state + 2 * heads * width
    chunk = min(new, CHUNK)
    return 2 * chunk * body.groups * state + heads * (2 * chunk * width + 4 * width * state)
