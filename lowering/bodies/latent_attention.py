"""Lowers attention over latent vectors, absorbed: queries and outcomes go through the matrices that would expand keys
and values, and attention reads latent vectors as they are kept.

Expanding would be fewer FLOPs only where a sequence has more than 171 to 399 new tokens at a time, and stages keep
nothing but caches from one chunk of a prompt to the next."""

from collections.abc import Iterator

from helmsman.lowering.bodies.attention import NEW_KV
from helmsman.lowering.bodies.block_pass import BlockPass, chosen_by, seen_by
from helmsman.lowering.operation import Operation
from helmsman.lowering.tensor import Tensor, matrix, vector
from helmsman.schemas.blocks.attention import LatentAttention
from helmsman.schemas.formats import size_of


def matrices(body: LatentAttention, layer: int, hidden: int) -> Iterator[Tensor]:
    """Yield the projections, in order of use; every head's `k_b` brings its query to the width of latent vectors, and
    its `v_b` latent vectors to its outcome."""
    wide = body.heads * body.compared
    if body.query_rank is None:
        yield from matrix("q", layer, wide, hidden)
    else:
        yield from matrix("q_a", layer, body.query_rank, hidden)
        yield from matrix("q_b", layer, wide, body.query_rank)
    yield from matrix("kv_a", layer, body.cached_width, hidden)
    yield from matrix("k_b", layer, body.heads * body.latent, body.nope_dim)
    yield from matrix("v_b", layer, body.heads * body.value_dim, body.latent)
    yield from matrix("o", layer, hidden, body.heads * body.value_dim)
    indexer = body.indexer
    if indexer is not None and indexer.selects == "own":
        yield from matrix("index_q", layer, indexer.heads * indexer.head_dim, body.query_rank or hidden)
        yield from matrix("index_k", layer, indexer.head_dim, hidden)
        yield from matrix("index_weights", layer, indexer.heads, hidden)


def vectors(body: LatentAttention, layer: int) -> Iterator[Tensor]:
    """Yield the norms of queries, latent vectors and index keys."""
    if body.query_rank is not None:
        yield vector("q_norm", layer, body.query_rank)
    yield vector("append", layer, body.latent, "kv_norm")
    if body.indexer is not None and body.indexer.selects == "own":
        yield vector("append", layer, body.indexer.head_dim, "index_k_norm")
        yield Tensor("index_k_norm.bias", "append", layer, (body.indexer.head_dim,))


def operations(body: LatentAttention, block: BlockPass, source: str) -> Iterator[Operation]:
    """Yield the operations that read `source`, in order."""
    query, asking = "q", source
    if body.query_rank is not None:
        yield block.linear("q_a", (source,))
        yield block.linear("kv_a", (source,))
        yield block.norm("q_norm", ("q_a",), body.query_rank)
        query, asking = "q_b", "q_norm"
    yield block.linear(query, (asking,))
    if body.query_rank is None:
        yield block.linear("kv_a", (source,))
    if block.weights("index_q"):
        yield block.linear("index_q", (asking,))
        yield block.linear("index_k", (source,))
        yield block.linear("index_weights", (source,))
    yield _append(body, block, query)
    if block.weights("index_q"):
        yield _index(body, block)
    yield from _attention(body, block)


def _append(body: LatentAttention, block: BlockPass, query: str) -> Operation:
    """Return norm and rotation of what is new, written to the cache."""
    own = body.indexer is not None and body.indexer.selects == "own"
    indexed = body.indexer.head_dim if body.indexer is not None and own else 0
    tokens, kept = block.tokens, block.tokens * (body.cached_width + indexed)
    written = size_of(body.cache_copies * kept, block.formats.kv)
    rotated = body.rope_dim if body.rope is not None else 0
    flops = tokens * (4 * (body.latent + indexed) + 3 * (body.heads + 1) * rotated)
    moved = block.activations(2 * tokens * body.heads * body.rope_dim + 2 * kept)
    out, weights = block.activations(tokens * body.heads * body.compared), block.weights("append")
    place = block.layer + 1, block.layer, weights, tokens, block.bytes_of(weights), 0
    inputs = (query, "kv_a", *(("index_q", "index_k") if own else ()))
    return Operation("append", "append", *place, written, moved, out, flops, inputs=inputs)


def _index(body: LatentAttention, block: BlockPass) -> Operation:
    """Return the scores of all index keys for every token, and its choice of them."""
    assert body.indexer is not None
    indexer, seen, sequences = body.indexer, seen_by(block.iteration), block.iteration.batch
    copies = body.cache_copies  # each of which is gone through
    pairs, read = sequences * seen.pairs, size_of(copies * sequences * seen.cached * indexer.head_dim, block.formats.kv)
    out = copies * 4 * block.tokens * min(indexer.top_k, block.iteration.context)
    moved = copies * (block.activations(block.tokens * indexer.heads * indexer.head_dim) + 4 * pairs) + out
    flops = copies * 2 * pairs * indexer.heads * (indexer.head_dim + 1)
    place = block.layer + 1, block.layer, (), block.tokens, 0, read, 0
    inputs = ("append", "index_weights", NEW_KV)
    return Operation("index", "index", *place, moved, out, flops, 1, sequences, inputs=inputs)


def _attention(body: LatentAttention, block: BlockPass) -> Iterator[Operation]:
    sequences, iteration = block.iteration.batch, block.iteration
    seen = seen_by(iteration) if body.indexer is None else chosen_by(iteration, body.indexer.top_k)
    cached, choice = sequences * seen.cached, ("index",) if block.weights("index_q") else ()
    yield _absorbed(body, block, "k_b", ("append",), body.nope_dim, body.latent)
    yield _attended(body, block, sequences * seen.pairs, cached, ("k_b", NEW_KV, *choice))
    yield _absorbed(body, block, "v_b", ("attention",), body.latent, body.value_dim)
    yield block.linear("o", ("v_b",))


def _absorbed(
    body: LatentAttention, block: BlockPass, name: str, inputs: tuple[str, ...], taken: int, given: int
) -> Operation:
    """Return a product of every head by itself, which takes and gives so many values of each."""
    values = block.tokens * body.heads
    moved, out = block.activations(values * (taken + given)), block.activations(values * given)
    return block.linear(name, inputs)._replace(activation_bytes=moved, out_bytes=out)


def _attended(body: LatentAttention, block: BlockPass, pairs: int, cached: int, inputs: tuple[str, ...]) -> Operation:
    """Return attention of all heads to latent vectors, of which they have sums."""
    out = block.activations(block.tokens * body.heads * body.latent)
    moved = block.activations(block.tokens * body.heads * body.cached_width) + out
    read = size_of(body.cache_copies * cached * body.cached_width, block.formats.kv)
    place = block.layer + 1, block.layer, (), block.tokens, 0, read, 0
    flops, sequences = 2 * body.heads * pairs * (body.cached_width + body.latent), block.iteration.batch
    return Operation("attention", "attention", *place, moved, out, flops, 1, sequences, inputs=("append", *inputs))
