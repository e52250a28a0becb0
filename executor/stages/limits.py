"""Refuses models that say more than stages compute: nothing of a description is left out silently."""

from collections.abc import Iterator

from helmsman.executor.stages.latent_limits import latent_limits
from helmsman.executor.stages.recurrent_limits import recurrent_limits
from helmsman.schemas.blocks.attention import Attention, LatentAttention
from helmsman.schemas.blocks.block import Block, Body, BodyKind, Residual
from helmsman.schemas.blocks.feed_forward import Experts, FeedForward, PerLayerInput
from helmsman.schemas.blocks.norms import Norm
from helmsman.schemas.blocks.recurrent import DeltaRule, ShortConvolution, StateSpace
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.model import Model


def check_stages(model: Model) -> None:
    """Raise BadInputError for a model that has what stages do not compute, naming it."""
    missing = next(_missing(model), None)
    if missing is not None:
        remedy = "plan and simulate it, or run another model"
        raise BadInputError(f"{model.name} has {missing}: no kernels", field="model", value=missing, remedy=remedy)


def _missing(model: Model) -> Iterator[str]:
    embedding, head = model.embedding, model.head
    if embedding.width is not None or embedding.norm is not None:
        yield "an embedding that is narrower or normed"
    if head.bias or head.width is not None:
        yield "a head with a bias or a width of its own"
    if model.streams is not None or model.final is None:
        yield "several streams, or no final norm"
    yield from _in_layer_table(model)
    for layout in model.layouts:
        yield from _in_block(layout)
        for residual in layout.residuals:
            yield from _in_residual(residual)
    for norm in _norms(model):
        if not norm.weight:
            yield "norms of hidden states or heads without weights"


def _in_layer_table(model: Model) -> Iterator[str]:
    table = model.per_layer_table
    if table is not None and table.vocab < model.vocab:
        yield "inputs of layers for fewer tokens than its vocabulary has"
    if table is not None and (table.norm.kind != "rms" or not table.norm.weight):
        yield "inputs of layers without a norm of their own"


def _in_block(layout: Block) -> Iterator[str]:
    if layout.scale == "stored":
        if layout.residuals[-1].post is None:
            yield "a stored scale of blocks that end without a norm"
    elif layout.scale != 1.0:
        yield "scaled blocks"


def _in_residual(residual: Residual) -> Iterator[str]:
    several = len(residual.bodies) > 1
    own = [body.pre is not None or body.post is not None for body in residual.bodies]
    if residual.after is not None or (residual.post is not None and residual.scale != 1.0):
        yield "sums that are normed afterwards, or whose norm is scaled"
    if residual.post is None and (residual.pre is None or any(own)):
        yield "sums other than x + bodies(norm(x))"
    if several and residual.post is None and any(not isinstance(body.op, StateSpace) for body in residual.bodies[:-1]):
        yield "bodies that share a norm, other than state spaces before another"
    if (
        several
        and residual.post is not None
        and not all(body.pre is not None and body.post is not None for body in residual.bodies)
    ):
        yield "several bodies that share their norms"
    if residual.pre is None and not several and residual.bodies[0].pre is None and not _reads_states(residual):
        yield "bodies of hidden states that are not normed"
    for body in residual.bodies:
        yield from _in_body(body)
        if isinstance(body.op, Experts) and body.op.latent is not None and residual.scale * body.out_scale != 1.0:
            yield "scaled experts with an input of their own"
        if residual.post is not None and (body.in_scale, body.out_scale) != (1.0, 1.0):
            yield "scaled bodies whose outcomes are normed"
        if residual.post is not None and isinstance(body.op, Experts) and body.op.shared is not None:
            yield "a shared network whose outcome is normed with that of experts"


def _reads_states(residual: Residual) -> bool:
    """Return whether a residual reads hidden states as they are, and its outcome is normed."""
    return isinstance(residual.bodies[0].op, PerLayerInput) and residual.post is not None


def _norms(model: Model) -> Iterator[Norm]:
    for layout in model.layouts:
        for residual in layout.residuals:
            own = (norm for body in residual.bodies for norm in (body.pre, body.post))
            yield from (norm for norm in (residual.pre, *own, residual.post) if norm is not None)
        if layout.attention is not None and layout.attention.qk_norm is not None:
            yield layout.attention.qk_norm.norm
    if model.final is not None:
        yield model.final


def _in_body(body: Body) -> Iterator[str]:
    if body.in_scale != 1.0 and not _linear_in_input(body.op):
        yield "scaled inputs of a body with biases, norms or experts"
    if (body.in_scale, body.out_scale) != (1.0, 1.0) and isinstance(body.op, LatentAttention):
        yield "scaled latent attention"
    match body.op:
        case Attention() as op:
            yield from _in_attention(op)
        case LatentAttention() as op:
            yield from latent_limits(op)
        case DeltaRule() | StateSpace() | ShortConvolution() as op:
            yield from recurrent_limits(op)
        case FeedForward() as op:
            yield from _in_network(op)
        case Experts() as op:
            yield from _in_experts(op)
        case PerLayerInput():
            if body.pre is not None or body.post is not None:
                yield "inputs of layers with norms of their own"
        case other:
            yield other.kind


def _in_attention(op: Attention) -> Iterator[str]:
    if op.chunk is not None:
        yield "attention in chunks"
    if op.cache_of is not None and (op.output_gate or _over_projection(op)):
        yield "a gate, or norms of whole projections, over another layer's cache"
    if op.output_gate and (op.sinks or op.softcap is not None or op.values != "own" or _over_projection(op)):
        yield "a gate beside sinks, caps, values from keys or norms of whole projections"
    if op.qk_norm is not None and op.key_scale != 1.0:
        yield "keys that are scaled before a norm"
    if op.query_temperature is not None or op.clip is not None:
        yield "queries that are scaled by position, or cut"
    if op.value_dim != op.head_dim:
        yield "values of another width than keys"
    if op.value_norm is not None and op.value_norm.weight:
        yield "a norm of values with weights"
    if op.qk_norm is not None and op.qk_norm.place != "before-rotation":
        yield "norms after rotation"
    if op.rope is not None and (op.rope.at != "leading" or op.rope.pairs != "half"):
        yield "a rotation of trailing or interleaved dimensions"


def _linear_in_input(op: BodyKind) -> bool:
    """Return whether products may be scaled in place of what they multiply."""
    match op:
        case Attention():
            return not op.qkv_bias
        case StateSpace() | FeedForward():
            return not op.bias
        case _:
            return False


def _over_projection(op: Attention) -> bool:
    return op.qk_norm is not None and op.qk_norm.over == "projection"


def _in_network(op: FeedForward) -> Iterator[str]:
    if op.clamp is not None:
        yield "networks whose gate is cut"
    if op.activation == "swiglu_oai" and not op.gated:
        yield "an activation of gated networks without a gate"


def _in_experts(op: Experts) -> Iterator[str]:
    if op.router.choice != "scores":
        yield "a router by table or with jitter"
    if op.router.input_norm is not None and op.router.input_norm.weight:
        yield "a router's norm with weights of its own beside its scale"
    if op.shared is not None:
        yield from _in_network(op.shared)
