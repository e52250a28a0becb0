"""Makes the operations that mixers with a state share: convolutions over time, and recurrences."""

from helmsman.lowering.bodies.block_pass import BlockPass
from helmsman.lowering.operation import Operation

STATE_BYTES = 4
"""Bytes of a number of a state, which is kept in f32."""

TAP_BYTES = 2
"""Bytes of a value that a convolution over time keeps of the tokens before."""


def convolution(block: BlockPass, name: str, inputs: tuple[str, ...], channels: int, taps: int) -> Operation:
    """Return a convolution over time of every channel, whose last inputs are kept for the next pass."""
    values, weights = block.tokens * channels, block.weights(name)
    out, kept = block.activations(values), block.iteration.batch * (taps - 1) * channels * TAP_BYTES
    place = block.layer + 1, block.layer, weights, block.tokens, block.bytes_of(weights), 2 * kept, 0
    flops, sequences = (2 * taps + 4) * values, block.iteration.batch
    return Operation(name, "convolution", *place, 2 * out, out, flops, 1, sequences, inputs=inputs)


def recurrence(
    block: BlockPass, name: str, inputs: tuple[str, ...], *, flops: int, state: int, values_in: int, values_out: int
) -> Operation:
    """Return what reads and writes a state of `state` numbers per sequence, at `flops` a token."""
    weights, sequences = block.weights(name), block.iteration.batch
    touched = 2 * STATE_BYTES * sequences * state
    moved, out = (
        block.activations(block.tokens * (values_in + values_out)),
        block.activations(block.tokens * values_out),
    )
    place = block.layer + 1, block.layer, weights, block.tokens, block.bytes_of(weights), touched, 0
    return Operation(name, "recurrence", *place, moved, out, block.tokens * flops, 1, sequences, inputs=inputs)
