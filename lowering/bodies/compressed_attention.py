"""Lowers attention over a window of tokens and entries that each pool some of them (DeepSeek V4)."""

from collections.abc import Iterator

from helmsman.lowering.bodies.attention import NEW_KV
from helmsman.lowering.bodies.block_pass import BlockPass, chosen_by, seen_by
from helmsman.lowering.operation import Operation
from helmsman.lowering.tensor import Tensor, matrix, vector
from helmsman.schemas.blocks.attention import CompressedAttention
from helmsman.schemas.formats import size_of


def matrices(body: CompressedAttention, layer: int, hidden: int) -> Iterator[Tensor]:
    """Yield the projections, in order of use."""
    wide = body.heads * body.head_dim
    yield from matrix("q_a", layer, body.query_rank, hidden)
    yield from matrix("q_b", layer, wide, body.query_rank)
    yield from matrix("kv", layer, body.head_dim, hidden)
    if body.ratio is not None:
        yield from _pooling(body, "pool", layer, body.head_dim, hidden)
    if body.indexer is not None:
        yield from matrix("index_q", layer, body.indexer.heads * body.indexer.head_dim, body.query_rank)
        yield from matrix("index_weights", layer, body.indexer.heads, hidden)
        yield from _pooling(body, "index_pool", layer, body.indexer.head_dim, hidden)
    yield from matrix("o_a", layer, body.out_groups * body.out_rank, wide // body.out_groups)
    yield from matrix("o_b", layer, hidden, body.out_groups * body.out_rank)


def _pooling(body: CompressedAttention, op: str, layer: int, width: int, hidden: int) -> Iterator[Tensor]:
    """Yield what makes entries of `width` values: the values, their gates, and biases by position in an entry."""
    rows = (1 + body.overlap) * width
    yield from matrix(f"{op}_values", layer, rows, hidden)
    yield from matrix(f"{op}_gates", layer, rows, hidden)
    yield Tensor(f"{op}_places.weight", f"{op}_gates", layer, (body.ratio or 1, rows), exact=True)


def vectors(body: CompressedAttention, layer: int) -> Iterator[Tensor]:
    """Yield norms of queries, keys and entries, and the logits of sinks."""
    yield vector("q_norm", layer, body.query_rank)
    yield vector("append", layer, body.head_dim, "kv_norm")
    if body.ratio is not None:
        yield vector("append", layer, body.head_dim, "pool_norm")
    if body.indexer is not None:
        yield vector("append", layer, body.indexer.head_dim, "index_pool_norm")
    if body.sinks:
        yield vector("attention", layer, body.heads, "sinks")


def operations(body: CompressedAttention, block: BlockPass, source: str) -> Iterator[Operation]:
    """Yield the operations that read `source`, in order."""
    yield block.linear("q_a", (source,))
    yield block.norm("q_norm", ("q_a",), body.query_rank)
    yield block.linear("q_b", ("q_norm",))
    made = ["q_b", "kv"]
    yield block.linear("kv", (source,))
    pools = [op for op in ("pool", "index_pool") if block.weights(f"{op}_values")]
    for op in pools:
        yield block.linear(f"{op}_values", (source,))
        gates = block.weights(f"{op}_gates")
        rows, columns = gates[0].shape
        yield _gates(block, f"{op}_gates", source, rows, columns)
        made += [f"{op}_values", f"{op}_gates"]
    if body.indexer is not None:
        yield block.linear("index_q", ("q_norm",))
        yield block.linear("index_weights", (source,))
    yield _append(body, block, tuple(made))
    choice: tuple[str, ...] = ()
    if body.indexer is not None:
        yield _index(body, block)
        choice = ("index",)
    yield _attended(body, block, ("append", NEW_KV, *choice))
    yield _grouped(body, block)
    yield block.linear("o_b", ("o_a",))


def _gates(block: BlockPass, name: str, source: str, rows: int, columns: int) -> Operation:
    weights, tokens = block.weights(name), block.tokens
    place = block.layer + 1, block.layer, weights, tokens, block.bytes_of(weights), 0, 0
    moved, out = block.activations(tokens * (rows + columns)), block.activations(tokens * rows)
    flops = 2 * tokens * rows * columns + tokens * rows
    return Operation(name, "linear", *place, moved, out, flops, rows, columns=columns, inputs=(source,))


def cached_per_token(body: CompressedAttention) -> float:
    """Return values that a long context keeps of a token: its part of an entry, and of an index key."""
    entries = body.head_dim / body.ratio if body.ratio else 0.0
    keys = body.indexer.head_dim / body.ratio if body.ratio and body.indexer else 0.0
    return entries + keys


def _append(body: CompressedAttention, block: BlockPass, inputs: tuple[str, ...]) -> Operation:
    """Return norms and rotations of what is new, pooled and written to the cache."""
    tokens, widths = block.tokens, body.head_dim * (1 + (body.ratio is not None))
    flops = tokens * (4 * widths + 3 * (body.heads + 1) * body.rope.turned + 6 * widths)
    written = size_of(round(tokens * (body.head_dim + cached_per_token(body))), block.formats.kv)
    moved = block.activations(2 * tokens * (body.heads * body.rope.turned + widths))
    out, weights = block.activations(tokens * body.heads * body.head_dim), block.weights("append")
    place = block.layer + 1, block.layer, weights, tokens, block.bytes_of(weights), 0
    return Operation("append", "append", *place, written, moved, out, flops, inputs=inputs)


def _index(body: CompressedAttention, block: BlockPass) -> Operation:
    """Return the scores of all pooled index keys for every token, and its choice of entries."""
    assert body.indexer is not None and body.ratio is not None
    indexer, seen, sequences = body.indexer, seen_by(block.iteration), block.iteration.batch
    pairs = sequences * seen.pairs // body.ratio
    read = size_of(sequences * (seen.cached // body.ratio) * indexer.head_dim, block.formats.kv)
    out = 4 * block.tokens * min(indexer.top_k, max(1, block.iteration.context // body.ratio))
    moved = block.activations(block.tokens * indexer.heads * indexer.head_dim) + 4 * pairs + out
    flops = 2 * pairs * indexer.heads * (indexer.head_dim + 1)
    place = block.layer + 1, block.layer, (), block.tokens, 0, read, 0
    inputs = ("append", "index_q", "index_weights", NEW_KV)
    return Operation("index", "index", *place, moved, out, flops, 1, sequences, inputs=inputs)


def _attended(body: CompressedAttention, block: BlockPass, inputs: tuple[str, ...]) -> Operation:
    """Return attention to the window's tokens and to entries: all of them, or those that were chosen."""
    near, sequences = seen_by(block.iteration, body.window), block.iteration.batch
    pairs, cached = near.pairs, near.cached
    if body.ratio is not None:
        most = None if body.indexer is None else body.indexer.top_k * body.ratio
        far = seen_by(block.iteration) if most is None else chosen_by(block.iteration, most)
        pairs, cached = pairs + far.pairs // body.ratio, cached + far.cached // body.ratio
    flops = 4 * body.heads * body.head_dim * sequences * pairs
    read = size_of(sequences * cached * body.head_dim, block.formats.kv)
    out, weights = block.activations(block.tokens * body.heads * body.head_dim), block.weights("attention")
    place = block.layer + 1, block.layer, weights, block.tokens, block.bytes_of(weights), read, 0
    return Operation("attention", "attention", *place, 2 * out, out, flops, 1, sequences, inputs=inputs)


def _grouped(body: CompressedAttention, block: BlockPass) -> Operation:
    """Return the product of every group's rows with that group's values."""
    product = block.linear("o_a", ("attention",))
    wide = block.activations(block.tokens * body.heads * body.head_dim)
    return product._replace(activation_bytes=product.out_bytes + wide)
