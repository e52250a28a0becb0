"""Refuses models that say more than stages compute: nothing of a description is left out silently."""

from collections.abc import Iterator

from helmsman.schemas.blocks.attention import Attention
from helmsman.schemas.blocks.block import Body
from helmsman.schemas.blocks.feed_forward import Experts, FeedForward
from helmsman.schemas.blocks.norms import Norm
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.model import Model

_SAME = 1e-6
"""Relative: configurations state scales in decimals."""


def check_stages(model: Model) -> None:
    """Raise BadInputError for a model that has what stages do not compute, naming it."""
    missing = next(_missing(model), None)
    if missing is not None:
        remedy = "plan and simulate it, or run another model"
        raise BadInputError(f"{model.name} has {missing}: no kernels", field="model", value=missing, remedy=remedy)


def _missing(model: Model) -> Iterator[str]:
    embedding, head = model.embedding, model.head
    if embedding.scale != 1.0 or embedding.width is not None or embedding.norm is not None:
        yield "an embedding that is scaled, narrower or normed"
    if head.bias or head.scale != 1.0 or head.divide != 1.0 or head.softcap is not None or head.width is not None:
        yield "a head with a bias, a scale, a cap or a width of its own"
    if model.streams is not None or model.per_layer_table is not None or model.final is None:
        yield "several streams, inputs of layers, or no final norm"
    for layout in model.layouts:
        if layout.scale != 1.0:
            yield "scaled blocks"
        for residual in layout.residuals:
            bodies = residual.bodies
            if residual.pre is None or residual.post is not None or residual.after is not None or len(bodies) > 1:
                yield "sums other than x + body(norm(x))"
            if residual.scale != 1.0:
                yield "scaled residuals"
            yield from _in_body(bodies[0])
    for norm in _norms(model):
        if norm.offset or not norm.weight:
            yield "norms without weights, or with weights around zero"


def _norms(model: Model) -> Iterator[Norm]:
    for layout in model.layouts:
        yield from (residual.pre for residual in layout.residuals if residual.pre is not None)
        if layout.attention is not None and layout.attention.qk_norm is not None:
            yield layout.attention.qk_norm.norm
    if model.final is not None:
        yield model.final


def _in_body(body: Body) -> Iterator[str]:
    if body.in_scale != 1.0 or body.out_scale != 1.0 or body.pre is not None or body.post is not None:
        yield "bodies with scales or norms of their own"
    match body.op:
        case Attention() as op:
            yield from _in_attention(op)
        case FeedForward() as op:
            yield from _in_network(op)
        case Experts() as op:
            yield from _in_experts(op)
        case other:
            yield other.kind


def _in_attention(op: Attention) -> Iterator[str]:
    if op.chunk is not None or op.cache_of is not None or op.sinks or op.softcap is not None or op.output_gate:
        yield "attention in chunks, over another layer's cache, with sinks, a cap or a gate"
    if op.query_temperature is not None or op.key_scale != 1.0 or op.clip is not None or op.value_norm is not None:
        yield "queries, keys or values that are scaled, cut or normed"
    if op.values != "own" or op.value_dim != op.head_dim:
        yield "values that are keys, or of another width"
    if abs(op.scale * op.head_dim**0.5 - 1) > _SAME:
        yield f"scores scaled by {op.scale}"
    if op.qk_norm is not None and op.qk_norm.place != "before-rotation":
        yield "norms after rotation"
    if op.rope is not None and (op.rope.at != "leading" or op.rope.pairs != "half"):
        yield "a rotation of trailing or interleaved dimensions"


def _in_network(op: FeedForward) -> Iterator[str]:
    if op.clamp is not None or op.gate_scale != 1.0:
        yield "networks whose gate is cut or scaled"
    if op.activation == "swiglu_oai" and not op.gated:
        yield "an activation of gated networks without a gate"


def _in_experts(op: Experts) -> Iterator[str]:
    if op.router.choice != "scores" or op.router.input_norm is not None or op.latent is not None:
        yield "a router by table or with jitter, or experts with an input of their own"
    if op.shared is not None:
        yield from _in_network(op.shared)
