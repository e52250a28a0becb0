"""Lowers routed experts: the router, the experts that tokens of a pass choose, and the network that all tokens share.

Weights of experts are read once by a pass, those of distinct experts that its tokens choose (`lowering.routing`)."""

from collections.abc import Iterator

from helmsman.lowering.bodies import feed_forward
from helmsman.lowering.bodies.block_pass import BlockPass
from helmsman.lowering.operation import Operation
from helmsman.lowering.routing import distinct_experts
from helmsman.lowering.tensor import Tensor, matrix, vector
from helmsman.schemas.blocks.feed_forward import Experts

_CHOICE_BYTES = 8
"""Bytes of a chosen expert's number and weight."""

EXPERTS = "experts_*"
"""The pattern of names of routed experts, tensors and operations."""

ROUTER = "router"
"""The operation that chooses experts."""

_GATE, UP, _DOWN = "experts_gate", "experts_up", "experts_down"

LATENT_IN, LATENT_OUT = "latent_in", "latent_out"
"""The products before and behind experts whose input is narrower than hidden states."""

EXPERT_PRODUCTS = (_GATE, UP, _DOWN)
"""The products with matrices of routed experts, in order."""


def matrices(body: Experts, layer: int, hidden: int) -> Iterator[Tensor]:
    """Yield the router, the experts (expert, rows out, columns in) and what all tokens go through."""
    wide = body.latent or hidden
    yield Tensor("router.weight", "router", layer, (body.experts, hidden), exact=True)
    if body.router.bias:
        yield Tensor("router.bias", "router", layer, (body.experts,))
    if body.latent is not None:
        yield from matrix(LATENT_IN, layer, body.latent, hidden)
    if body.gated:
        yield from _stacked(body, _GATE, layer, body.width, wide)
    yield from _stacked(body, UP, layer, body.width, wide)
    yield from _stacked(body, _DOWN, layer, wide, body.width)
    if body.latent is not None:
        yield from matrix(LATENT_OUT, layer, hidden, body.latent)
    if body.shared is not None:
        yield from feed_forward.matrices(body.shared, layer, hidden, feed_forward.SHARED)
    if body.shared_gate:
        yield Tensor("shared_scale.weight", "shared_scale", layer, (1, hidden), exact=True)


def vectors(body: Experts, layer: int, hidden: int) -> Iterator[Tensor]:
    """Yield what the router stores beside its matrix."""
    if body.router.correction:
        yield vector("router", layer, body.experts, "correction")._replace(buffer=True)
    if body.router.input_norm is not None:
        yield vector("router", layer, hidden, "router_scale")
    if body.router.expert_scale:
        yield vector("router", layer, body.experts, "expert_scale")


def _stacked(body: Experts, op: str, layer: int, rows: int, columns: int) -> Iterator[Tensor]:
    yield Tensor(f"{op}.weight", op, layer, (body.experts, rows, columns), stacked=True)
    if body.bias:
        yield Tensor(f"{op}.bias", op, layer, (body.experts, rows), exact=True, stacked=True)


def operations(body: Experts, block: BlockPass, source: str) -> Iterator[Operation]:
    """Yield the operations that read `source`, in order."""
    yield _router(body, block, source)
    entry = source
    if body.latent is not None:
        yield block.linear(LATENT_IN, (source,))
        entry = LATENT_IN
    if body.gated:
        yield _product(body, block, _GATE, (entry, "router"))
    yield _product(body, block, UP, (entry, "router", *((_GATE,) if body.gated else ())))
    yield _product(body, block, _DOWN, (UP, "router"))
    outcomes = [_DOWN]
    if body.latent is not None:
        yield block.linear(LATENT_OUT, (_DOWN,))
        outcomes = [LATENT_OUT]
    if body.shared is not None:
        yield from _shared(body, block, source, outcomes[0])


def _shared(body: Experts, block: BlockPass, source: str, routed: str) -> Iterator[Operation]:
    """Yield the shared network, whose last operation adds what the experts gave."""
    assert body.shared is not None
    *before, down = feed_forward.operations(body.shared, block, source, feed_forward.SHARED)
    yield from before
    scale: tuple[str, ...] = ()
    if body.shared_gate:
        yield block.linear("shared_scale", (source,))
        scale = ("shared_scale",)
    yield down._replace(inputs=(*down.inputs, *scale, routed))


def _router(body: Experts, block: BlockPass, source: str) -> Operation:
    """Return the product of the router's matrix in f32, with what it stores beside it."""
    weights = block.weights("router")
    matrices = tuple(weight for weight in weights if len(weight.shape) > 1)
    rows, columns = matrices[0].shape
    flops = block.tokens * (2 * rows * columns + 8 * rows)
    moved = block.activations(block.tokens * columns) + 8 * block.tokens * rows
    place = block.layer + 1, block.layer, weights, block.tokens, block.bytes_of(weights), 0, 0
    out = _CHOICE_BYTES * block.tokens * body.chosen
    return Operation(
        "router", "linear", *place, moved, out, flops, columns=columns, inputs=(source,),
        half=block.half,
    )  # fmt: skip


def _product(body: Experts, block: BlockPass, name: str, inputs: tuple[str, ...]) -> Operation:
    """Return one matrix of every expert that a token chooses, times that token's values: rows of all experts together,
    `sequences` of them distinct."""
    weights, chosen = block.weights(name), block.tokens * body.chosen
    _, rows, columns = weights[0].shape
    distinct = distinct_experts(body, block.tokens)
    share = distinct / body.experts
    flops = 2 * chosen * rows * columns + chosen * rows * (len(weights) - 1)
    out_rows = block.tokens if name == _DOWN else chosen
    out = block.activations(out_rows * rows)
    moved = block.activations(chosen * (rows + columns))
    size = round(share * block.bytes_of(weights))
    place = block.layer + 1, block.layer, weights, chosen, size, 0, 0
    return Operation(
        name,
        "experts",
        *place,
        moved,
        out,
        flops,
        body.experts,
        max(1, round(distinct)),
        columns=columns,
        inputs=inputs,
        half=block.half,
        weight_share=share,
        adds_up=name == _DOWN,
        per_token=body.chosen,
    )
