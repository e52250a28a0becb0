"""Lowers a gated delta rule: projections, a convolution over time, the recurrence on a state per head, a gated norm."""

from collections.abc import Iterator

from helmsman.lowering.bodies.block_pass import BlockPass
from helmsman.lowering.bodies.recurrent import convolution, recurrence
from helmsman.lowering.operation import Operation
from helmsman.lowering.tensor import Tensor, matrix, vector
from helmsman.schemas.blocks.recurrent import DeltaRule

CHUNK = 64
"""Tokens of a prompt that the recurrence takes together."""


def matrices(body: DeltaRule, layer: int, hidden: int) -> Iterator[Tensor]:
    """Yield the projections, in order of use."""
    inner = body.value_heads * body.value_dim
    yield from matrix("delta_in", layer, body.channels, hidden)
    if body.rank is None:
        yield from matrix("delta_gate", layer, inner, hidden)
        yield from matrix("delta_decay", layer, body.value_heads, hidden)
    else:
        yield from matrix("delta_gate_a", layer, body.rank, hidden)
        yield from matrix("delta_gate", layer, inner, body.rank)
        yield from matrix("delta_decay_a", layer, body.rank, hidden)
        yield from matrix("delta_decay", layer, body.key_heads * body.key_dim, body.rank)
    yield from matrix("delta_beta", layer, body.value_heads, hidden)
    yield Tensor("delta_conv.weight", "delta_conv", layer, (body.channels, body.taps), exact=True)
    yield from matrix("delta_out", layer, hidden, inner)


def vectors(body: DeltaRule, layer: int) -> Iterator[Tensor]:
    """Yield rates and offsets of the decay, and the norm of a head's outcome."""
    yield vector("delta", layer, body.value_heads, "delta_rate")
    offsets = body.value_heads if body.decay == "head" else body.key_heads * body.key_dim
    yield vector("delta", layer, offsets, "delta_offset")
    yield vector("delta_norm", layer, body.value_dim)


def operations(body: DeltaRule, block: BlockPass, source: str) -> Iterator[Operation]:
    """Yield the operations that read `source`, in order."""
    yield block.linear("delta_in", (source,))
    gate, decay = source, source
    if body.rank is not None:
        yield block.linear("delta_gate_a", (source,))
        yield block.linear("delta_decay_a", (source,))
        gate, decay = "delta_gate_a", "delta_decay_a"
    yield block.linear("delta_gate", (gate,))
    yield block.linear("delta_decay", (decay,))
    yield block.linear("delta_beta", (source,))
    yield convolution(block, "delta_conv", ("delta_in",), body.channels, body.taps)
    inner = body.value_heads * body.value_dim
    yield recurrence(
        block,
        "delta",
        ("delta_conv", "delta_decay", "delta_beta"),
        flops=_flops(body, block.iteration.tokens),
        state=body.state_elements,
        values_in=body.channels + 2 * body.value_heads,
        values_out=inner,
    )
    norm = block.norm("delta_norm", ("delta", "delta_gate"), inner)
    yield norm._replace(flops=2 * norm.flops, activation_bytes=3 * norm.activation_bytes // 2)
    yield block.linear("delta_out", ("delta_norm",))


def _flops(body: DeltaRule, new: int) -> int:
    """Return FLOPs of the recurrence for one of `new` tokens of a sequence: token by token, or by chunks."""
    heads, keys, values = body.value_heads, body.key_dim, body.value_dim
    if new == 1:
        return 7 * heads * keys * values
    chunk = min(new, CHUNK)
    decays = 2 * chunk * keys if body.decay == "dimension" else 0
    return heads * (6 * keys * values + chunk * (5 * keys + 3 * values) + decays)
