"""The operations of a block in a stage, made of the block's description: where a new kind of body is entered."""

from collections.abc import Iterator
from math import isclose, sqrt

from helmsman.executor.devices.operations import AnyOperation, CacheUser, NormOperation, NormSumOperation
from helmsman.executor.devices.parts import Buffer
from helmsman.executor.devices.tensors import NormParts
from helmsman.executor.stages.block_part import BlockPart, StageCache
from helmsman.executor.stages.common_operations import norm_operation, norm_sum
from helmsman.executor.stages.expert_operations import expert_operations
from helmsman.executor.stages.latent_operations import latent_attention
from helmsman.executor.stages.network_operations import feed_forward, per_layer_input
from helmsman.executor.stages.recurrent_operations import delta_rule, short_convolution, state_space
from helmsman.lowering.bodies.attention import append_name
from helmsman.lowering.bodies.per_layer_input import LAYER_OUT
from helmsman.lowering.residuals import NamedNorm, NormedBody, NormedResidual, normed_residuals
from helmsman.schemas.blocks.attention import Attention, LatentAttention
from helmsman.schemas.blocks.feed_forward import Experts, FeedForward, PerLayerInput
from helmsman.schemas.blocks.recurrent import DeltaRule, ShortConvolution, StateSpace
from helmsman.schemas.model import Model

SAME = 1e-6
"""The largest relative difference of a scale of scores from 1 / sqrt(head_dim): configurations state decimals."""

GATED = "q_gated"
"""The value in which queries are whose gates multiply what attention gives."""

OUTCOMES = {"attention": "o", "feed-forward": "down", "experts": "experts_down", "per-layer-input": LAYER_OUT}
"""By kind of body, the value that it leaves where that is normed before it joins the residual stream."""

JOINED = "joined"
"""The value in which outcomes of several bodies are added up before they join it."""


def block_operations(model: Model, block: BlockPart) -> Iterator[AnyOperation]:
    """Yield the operations of a block, in order, of a model that stages compute (`check_stages`)."""
    residuals = normed_residuals(model.blocks[block.layer])
    for residual in residuals:
        if residual.pre is not None:
            yield _norm(residual.pre, block)
        if residual.post is None:
            for body in residual.bodies:
                factor = residual.residual.scale * body.body.out_scale
                yield from _scaled(_body(model, body, block, "hidden"), body.body.in_scale, factor)
            continue
        scaled = residual is residuals[-1]
        yield from _normed(model, residual, block, block.part.block_scale(block.layer) if scaled else None)


def _scaled(operations: Iterator[AnyOperation], into: float, out: float) -> Iterator[AnyOperation]:
    """Yield the operations of a body whose input and outcome are multiplied: products with what is normed, what they
    add to hidden states, and the weights of experts."""
    for op in operations:
        if op["kind"] == "linear" and op["inputs"][0] == "normed":
            op["factor"] = op.get("factor", 1.0) * into
        if op["kind"] == "linear" and op["output"] == "hidden":
            op["factor"] = op.get("factor", 1.0) * out
        if op["kind"] == "router":
            op["scaling"] *= out
        yield op


def _norm(named: NamedNorm, block: BlockPart) -> NormOperation:
    return norm_operation(named.name, block.number, named.norm, block.part.norm(named.name, block.layer))


def _normed(model: Model, residual: NormedResidual, block: BlockPart, scale: Buffer | None) -> Iterator[AnyOperation]:
    """Yield bodies whose outcomes are normed, each or added up, and then join the residual stream."""
    assert residual.post is not None, "a norm after bodies"
    value = OUTCOMES[residual.bodies[0].body.op.kind]
    for number, body in enumerate(residual.bodies):
        outcome = OUTCOMES[body.body.op.kind]
        if body.pre is not None:
            yield {**_norm(body.pre, block), "continues": number > 0}
        yield from _body(model, body, block, outcome)
        if body.post is not None:
            yield _sum(body.post, block, outcome, JOINED, adds=number > 0)
            value = JOINED
    yield {**_sum(residual.post, block, value, "hidden", adds=True), "factor": scale}


def _sum(named: NamedNorm, block: BlockPart, value: str, output: str, adds: bool) -> NormSumOperation:
    weights = block.part.norm(named.name, block.layer)
    return norm_sum(named.name, block.number, value, output, named.norm, weights, adds)


def _body(model: Model, body: NormedBody, block: BlockPart, target: str) -> Iterator[AnyOperation]:
    """Yield the operations of a body, whose outcome is added to hidden states or left in a value of its own."""
    hidden = model.hidden
    match body.body.op:
        case Attention() as op:
            yield from _attention(hidden, op, block, target)
        case LatentAttention() as op:
            yield from latent_attention(hidden, op, block)
        case DeltaRule() as op:
            yield from delta_rule(hidden, op, block)
        case StateSpace() as op:
            yield from state_space(hidden, op, block)
        case ShortConvolution() as op:
            yield from short_convolution(hidden, op, block)
        case FeedForward() as op:
            yield from feed_forward(hidden, op, block, target=target)
        case Experts() as op:
            yield from expert_operations(hidden, op, block, target)
        case PerLayerInput() as op:
            yield from per_layer_input(model, op, block)
        case other:
            raise AssertionError(f"check_stages refuses {other.kind}")


def _attention(hidden: int, body: Attention, block: BlockPart, target: str) -> Iterator[AnyOperation]:
    q, kv = body.heads * body.head_dim, body.kv_heads * body.head_dim
    projected = GATED if body.output_gate else "q"
    yield block.product("q", ["normed"], projected, (q * (1 + body.output_gate), hidden))
    if body.cache_of is None:
        yield block.product("k", ["normed"], "k", (kv, hidden), factor=body.key_scale)
    if body.cache_of is None and body.values == "own":
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
        made = _attended(body, block, cache, "attention", ["q", GATED] if body.output_gate else ["q"], "attended")
        sinks = part.vector("attention", "sinks", block.layer) if body.sinks else None
        yield {**made, "kind": "attention", "sinks": sinks}
    yield block.product("o", ["attended"], target, (hidden, q))


def _append(body: Attention, block: BlockPart, cache: StageCache) -> AnyOperation:
    norms, name, own = body.qk_norm, append_name(body), body.cache_of is None
    turns = body.rope is not None and block.part.has(name, block.layer)
    cos, sin = block.part.rotation(body.rope) if body.rope is not None and turns else (None, None)
    inputs = [
        GATED if body.output_gate else "q",
        *(["k"] if own else ()),
        *(["v"] if own and body.values == "own" else ()),
    ]
    return {
        **_attended(body, block, cache, name, inputs, "q"),
        "kind": "append",
        "gated": body.output_gate,
        "norm": "rms" if norms is None else norms.norm.kind,
        "eps": 0.0 if norms is None else norms.norm.eps,
        "over": "head" if norms is None else norms.over,
        "q_norm": None if norms is None else block.part.head_norm(name, "q_norm", block.layer),
        "k_norm": None if norms is None or not own else block.part.head_norm(name, "k_norm", block.layer),
        "value_norm": _value_norm(body, block) if own else None,
        "rotary_dim": body.rope.rotary_dim if body.rope is not None and turns else 0,
        "cos": cos,
        "sin": sin,
        "transposed": block.divided,
        "kept_keys": cache.kept_keys if own else [],
        "kept_values": cache.kept_values if own else [],
    }


def _value_norm(body: Attention, block: BlockPart) -> NormParts | None:
    norm = body.value_norm
    if norm is None:
        return None
    return {"norm": norm.kind, "eps": norm.eps, "weight": block.part.constants(((body.head_dim, 1.0),)), "bias": None}


def _window(body: Attention, block: BlockPart) -> int | None:
    """Return the window of a body, where there are positions beyond it."""
    beyond = body.window is not None and (block.context is None or body.window < block.context)
    return body.window if beyond else None


def _attended(
    body: Attention, block: BlockPart, cache: StageCache, name: str, inputs: list[str], output: str
) -> CacheUser:
    made: CacheUser = {
        "name": name,
        "block": block.number,
        "inputs": inputs,
        "output": output,
        "heads": body.heads,
        "kv_heads": body.kv_heads,
        "head_dim": body.head_dim,
        "keys": cache.keys,
        "values": cache.values,
        "softcap": body.softcap,
        "window": _window(body, block),
    }
    if cache.rows is not None:
        made["rows"] = cache.rows
    if not isclose(body.scale * sqrt(body.head_dim), 1.0, rel_tol=SAME):
        made["scale"] = body.scale
    return made
