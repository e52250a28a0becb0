"""The operations of a block in a stage, made of the block's description: where a new kind of body is entered."""

from collections.abc import Iterator

from helmsman.executor.devices.operations import AnyOperation, CacheUser
from helmsman.executor.stages.block_part import BlockPart, StageCache
from helmsman.executor.stages.common_operations import norm_operation
from helmsman.executor.stages.expert_operations import expert_operations
from helmsman.executor.stages.network_operations import feed_forward
from helmsman.lowering.residuals import NormedBody, normed_residuals
from helmsman.schemas.blocks.attention import Attention
from helmsman.schemas.blocks.feed_forward import Experts, FeedForward
from helmsman.schemas.model import Model


def block_operations(model: Model, block: BlockPart) -> Iterator[AnyOperation]:
    """Yield the operations of a block, in order, of a model that stages compute (`check_stages`)."""
    for residual in normed_residuals(model.blocks[block.layer]):
        assert residual.pre is not None, "check_stages refuses others"
        weights = block.part.norm(residual.pre.name, block.layer)
        yield norm_operation(residual.pre.name, block.number, residual.pre.norm, weights)
        yield from _body(model.hidden, residual.bodies[0], block)


def _body(hidden: int, body: NormedBody, block: BlockPart) -> Iterator[AnyOperation]:
    match body.body.op:
        case Attention() as op:
            yield from _attention(hidden, op, block)
        case FeedForward() as op:
            yield from feed_forward(hidden, op, block)
        case Experts() as op:
            yield from expert_operations(hidden, op, block)
        case other:
            raise AssertionError(f"check_stages refuses {other.kind}")


def _attention(hidden: int, body: Attention, block: BlockPart) -> Iterator[AnyOperation]:
    q, kv = body.heads * body.head_dim, body.kv_heads * body.head_dim
    yield block.product("q", ["normed"], "q", (q, hidden))
    yield block.product("k", ["normed"], "k", (kv, hidden))
    yield block.product("v", ["normed"], "v", (kv, hidden))
    cache, part = block.part.cache(block.layer), block.part
    yield _append(body, block, cache)
    if block.divided:
        scores, weighted = part.heads("scores", block.layer), part.heads("wv", block.layer)
        made = _attended(body, block, cache, "scores", ["q"], "scores")
        yield {**made, "kind": "scores", "computes": scores}
        made = _attended(body, block, cache, "softmax", ["scores"], "scores")
        yield {**made, "kind": "softmax", "computes": None}
        made = _attended(body, block, cache, "wv", ["scores"], "attended")
        yield {**made, "kind": "weighted", "computes": weighted}
    else:
        yield {**_attended(body, block, cache, "attention", ["q"], "attended"), "kind": "attention"}
    yield block.product("o", ["attended"], "hidden", (hidden, q))


def _append(body: Attention, block: BlockPart, cache: StageCache) -> AnyOperation:
    norms = body.qk_norm
    turns = body.rope is not None and block.part.has("append", block.layer)
    cos, sin = block.part.rotation(body.rope) if body.rope is not None and turns else (None, None)
    return {
        **_attended(body, block, cache, "append", ["q", "k", "v"], "q"),
        "kind": "append",
        "norm": "rms" if norms is None else norms.norm.kind,
        "eps": 0.0 if norms is None else norms.norm.eps,
        "over": "head" if norms is None else norms.over,
        "q_norm": None if norms is None else block.part.head_norm("q_norm", block.layer),
        "k_norm": None if norms is None else block.part.head_norm("k_norm", block.layer),
        "rotary_dim": body.rope.rotary_dim if body.rope is not None and turns else 0,
        "cos": cos,
        "sin": sin,
        "transposed": block.divided,
        "kept_keys": cache.kept_keys,
        "kept_values": cache.kept_values,
    }


def _attended(
    body: Attention, block: BlockPart, cache: StageCache, name: str, inputs: list[str], output: str
) -> CacheUser:
    return {
        "name": name,
        "block": block.number,
        "inputs": inputs,
        "output": output,
        "heads": body.heads,
        "kv_heads": body.kv_heads,
        "head_dim": body.head_dim,
        "keys": cache.keys,
        "values": cache.values,
    }
