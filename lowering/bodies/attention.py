"""Lowers grouped-query attention: projections, what is appended to the cache, scores and weighted values."""

from collections.abc import Iterator

from helmsman.lowering.bodies.block_pass import BlockPass, Seen, seen_by
from helmsman.lowering.operation import Operation
from helmsman.lowering.tensor import Tensor, matrix, vector
from helmsman.schemas.blocks.attention import Attention
from helmsman.schemas.formats import size_of

NEW_KV = "new_kv"
"""What a pass adds to a cache, as other operations read it before, or instead of, the cache."""


def matrices(body: Attention, layer: int, hidden: int) -> Iterator[Tensor]:
    """Yield the projections, in order of use."""
    yield from matrix("q", layer, body.q_width * (1 + body.output_gate), hidden, body.qkv_bias)
    if body.cache_of is None:
        yield from matrix("k", layer, body.k_width, hidden, body.qkv_bias)
        if body.values == "own":
            yield from matrix("v", layer, body.v_width, hidden, body.qkv_bias)
    yield from matrix("o", layer, hidden, body.out_width, body.out_bias)


def vectors(body: Attention, layer: int) -> Iterator[Tensor]:
    """Yield the norms of queries and keys, and the logits of sinks."""
    append = append_name(body)
    if body.qk_norm is not None and body.qk_norm.norm.weight:
        head = body.qk_norm.over == "head"
        yield vector(append, layer, body.head_dim if head else body.q_width, "q_norm")
        if body.cache_of is None:
            yield vector(append, layer, body.head_dim if head else body.k_width, "k_norm")
    if body.sinks:
        yield vector("attention", layer, body.heads, "sinks")


def append_name(body: Attention) -> str:
    """Return the operation that norms and rotates, and appends to a cache where the layer has one of its own."""
    return "append" if body.cache_of is None else "rotate"


def operations(body: Attention, block: BlockPass, source: str) -> Iterator[Operation]:
    """Yield the operations that read `source`, in order."""
    projections = [name for name in ("q", "k", "v") if block.weights(name)]
    yield from (block.linear(name, (source,)) for name in projections)
    append = _append(body, block, tuple(projections))
    yield append
    seen = seen_by(block.iteration, body.window, body.chunk)
    if block.divided:
        yield from _divided(body, block, append.name, seen)
    else:
        pairs, cached = block.iteration.batch * seen.pairs, block.iteration.batch * seen.cached
        yield whole(body, block, block.tokens, pairs, cached, block.iteration.batch, append.name)
    yield block.linear("o", ("attention",))


def _append(body: Attention, block: BlockPass, inputs: tuple[str, ...]) -> Operation:
    """Return QK norm, rotation, and the new keys and values written to the cache."""
    own, tokens, name = body.cache_of is None, block.tokens, append_name(body)
    rotated = tokens * (body.q_width + own * body.k_width)
    kept = tokens * own * (body.k_width + body.v_width)
    turned = tokens * (body.heads + own * body.kv_heads) * (body.rope.turned if body.rope else 0)
    moved = block.activations(2 * rotated + kept)
    flops = 4 * rotated * (body.qk_norm is not None) + 3 * turned
    out, weights = block.activations(tokens * body.q_width), block.weights(name)
    place = block.layer + 1, block.layer, weights, tokens, block.bytes_of(weights), 0
    written = size_of(kept, block.formats.kv)
    return Operation(name, "append" if own else "norm", *place, written, moved, out, flops, inputs=inputs)


def whole(
    body: Attention, block: BlockPass, tokens: int, pairs: int, cached: int, sequences: int, query: str = "append"
) -> Operation:
    """Return scores, softmax and weighted values together: causal, each token sees its own past (eq 4.11, 4.12).

    `tokens` of all `sequences`, which attend to `pairs` positions in all and read the keys and values of `cached`."""
    flops = 2 * body.heads * (body.head_dim + body.value_dim) * pairs
    read = size_of(cached * (body.k_width + body.v_width), block.formats.kv)
    out, weights = block.activations(tokens * body.out_width), block.weights("attention")
    place = block.layer + 1, block.layer, weights, tokens, block.bytes_of(weights)
    moved = block.activations(tokens * body.q_width * (1 + body.output_gate)) + out
    inputs = (query, NEW_KV)
    return Operation("attention", "attention", *place, read, 0, moved, out, flops, 1, sequences, inputs=inputs)


def _divided(body: Attention, block: BlockPass, query: str, seen: Seen) -> Iterator[Operation]:
    """Yield scores = Q K^T, softmax, weighted values = P V; keys and values are each read once."""
    sequences, heads = block.iteration.batch, body.kv_heads
    pairs, place = sequences * seen.pairs * body.heads, (block.layer + 1, block.layer, (), block.tokens, 0)
    keys, values = (
        size_of(sequences * seen.cached * width, block.formats.kv) for width in (body.k_width, body.v_width)
    )
    asking, weights = block.activations(block.tokens * body.q_width), block.activations(pairs)
    answer = block.activations(block.tokens * body.out_width)
    rest = 0, asking + weights, weights, 2 * body.head_dim * pairs, heads, sequences
    yield Operation("scores", "scores", *place, keys, *rest, inputs=(query, NEW_KV))
    yield Operation("softmax", "softmax", *place, 0, 0, 2 * weights, weights, 4 * pairs, inputs=("scores",))
    rest = 0, answer + weights, answer, 2 * body.value_dim * pairs, heads, sequences
    yield Operation("wv", "wv", *place, values, *rest, inputs=("softmax", NEW_KV), also="attention")
