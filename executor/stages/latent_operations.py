"""The operations of latent attention in a stage, absorbed: queries meet latent vectors as the cache keeps them."""

from collections.abc import Iterator
from math import sqrt

from helmsman.executor.devices.operations import AnyOperation, LatentAppendOperation
from helmsman.executor.stages.block_part import BlockPart
from helmsman.schemas.blocks.attention import LatentAttention

ABSORBED = "absorbed"
"""The value that holds the queries of all heads, each as wide as a row of the cache."""


def latent_attention(hidden: int, body: LatentAttention, block: BlockPart) -> Iterator[AnyOperation]:
    """Yield projections, what is appended, every head's own products around attention, and the output."""
    queries, rank = body.heads * body.compared, body.query_rank
    if rank is None:
        query = "q"
        yield block.product("q", ["normed"], "q", (queries, hidden))
        yield block.product("kv_a", ["normed"], "kv_a", (body.cached_width, hidden))
    else:
        query = "q_b"
        yield block.product("q_a", ["normed"], "q_a", (rank, hidden))
        yield block.product("kv_a", ["normed"], "kv_a", (body.cached_width, hidden))
        yield _norm(rank, body, block)
        yield block.product("q_b", ["q_norm"], "q_b", (queries, rank))
    yield _append(query, body, block)
    yield _grouped("k_b", query, ABSORBED, (body.compared, body.cached_width), body, block)
    keys = block.part.cache(block.layer).keys
    yield {
        "kind": "attention",
        "name": "attention",
        "block": block.number,
        "inputs": [ABSORBED],
        "output": "attended",
        "heads": body.heads,
        "kv_heads": 1,
        "head_dim": body.cached_width,
        "keys": keys,
        "values": keys,
    }
    yield _grouped("v_b", "attended", "v_b", (body.cached_width, body.value_dim), body, block)
    yield block.product("o", ["v_b"], "hidden", (hidden, body.heads * body.value_dim))


def score_factor(body: LatentAttention) -> float:
    """Return by what queries are multiplied so that attention, which divides scores by the root of a row's width, gives
    the model's scores."""
    return body.scale * sqrt(body.cached_width)


def _norm(rank: int, body: LatentAttention, block: BlockPart) -> AnyOperation:
    return {
        "kind": "value-norm",
        "name": "q_norm",
        "block": block.number,
        "inputs": ["q_a"],
        "output": "q_norm",
        "width": rank,
        "norm": body.norm.kind,
        "eps": body.norm.eps,
        "weights": block.part.norm("q_norm", block.layer),
    }


def _append(query: str, body: LatentAttention, block: BlockPart) -> LatentAppendOperation:
    part, layer, rope = block.part, block.layer, body.rope
    turns = rope is not None and part.has("append", layer)
    cos, sin = part.rotation(rope) if rope is not None and turns else (None, None)
    weight = part.vector("append", "kv_norm", layer)
    return {
        "kind": "latent-append",
        "name": "append",
        "block": block.number,
        "inputs": [query, "kv_a"],
        "output": ABSORBED,
        "heads": body.heads,
        "kv_heads": 1,
        "head_dim": body.cached_width,
        "keys": part.cache(layer).keys,
        "values": None,
        "plain": body.nope_dim,
        "rotated": body.rope_dim,
        "factor": score_factor(body),
        "pairs": "half" if rope is not None and rope.pairs == "half" else "interleaved",
        "norm": body.norm.kind,
        "eps": body.norm.eps,
        "weights": None if weight is None else {"weight": weight, "bias": None},
        "cos": cos,
        "sin": sin,
    }


def _grouped(
    name: str, value: str, output: str, widths: tuple[int, int], body: LatentAttention, block: BlockPart
) -> AnyOperation:
    return {
        "kind": "grouped",
        "name": name,
        "block": block.number,
        "inputs": [value],
        "output": output,
        "groups": body.heads,
        "taken": widths[0],
        "given": widths[1],
        "matrix": block.part.linear(name, block.layer),
    }
