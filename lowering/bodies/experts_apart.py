"""Lowers routed experts that are computed by another device than their router, or by several devices.

What experts read crosses in one message of the router: a token's activations with the numbers and weights of its
experts. Every device adds up what its own experts give, and `combine` adds these sums to the residual stream. Single
outcomes would let the order of the sum be the same for every placement, and take `chosen` times the bytes."""

from collections.abc import Iterator, Sequence

from helmsman.lowering.bodies.feed_forward import SHARED
from helmsman.lowering.operation import Operation

ROUTER, COMBINE = "router", "combine"

_SHARED_DOWN = f"{SHARED}down"


def expert_products(ops: Sequence[Operation]) -> tuple[Operation, ...]:
    """Return the products of a block's experts; none where experts read something narrower than hidden states, which
    are not divided."""
    products = tuple([op for op in ops if op.kind == "experts"])
    return () if any(op.name == "latent_in" for op in ops) else products


def apart(ops: Sequence[Operation], values: int) -> tuple[Operation, ...]:
    """Return the operations of a block with experts, with the message and the sums; `values`: hidden values of its
    tokens."""
    return tuple(_apart(ops, values))


def _apart(ops: Sequence[Operation], values: int) -> Iterator[Operation]:
    of, products = {op.name: op for op in ops}, expert_products(ops)
    names, down = {op.name for op in products}, products[-1]
    shared = of.get(_SHARED_DOWN)
    closing = down if shared is None else shared
    entry, closed = of[products[0].inputs[0]], False
    for op in ops:
        inputs = tuple([COMBINE if closed and name == closing.name else name for name in op.inputs])
        if op.name == ROUTER:
            op = op._replace(out_bytes=op.out_bytes + entry.out_bytes)
        elif op.name in names:
            inputs = tuple([name for name in inputs if name == ROUTER or name in names])
        elif op is shared:
            inputs = tuple([name for name in inputs if name != down.name])
        closes = op.name == closing.name
        yield op._replace(inputs=inputs, also=None if closes else op.also)
        if closes:
            closed = True
            yield _combine(down, closing, names, values)


def _combine(down: Operation, closing: Operation, names: set[str], values: int) -> Operation:
    """Return the sum of what devices have added up, and of the residual stream."""
    added = [name for name in down.inputs if name != ROUTER and name not in names]
    inputs = (down.name, *added) if closing is down else (down.name, closing.name)
    place = down.unit, down.layer, (), closing.tokens, 0, 0, 0
    out = down.out_bytes
    return Operation(
        COMBINE, "norm", *place, 3 * out, out, values, inputs=inputs, also=closing.also, half=down.half
    )  # fmt: skip
