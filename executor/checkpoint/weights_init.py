"""Random weights with which a wrong model shows.

Peaked attention (its softmax is far from uniform), a few outlier channels in the residual stream and in
norms, and a few dozen output tokens that stand out (the printable bytes), so that the best token leads the next
one by a visible margin and rounding does not change it. The residual stream grows evenly over the depth, which
keeps small errors small: a right model in f16 stays close to f32, a wrong one does not.

Every scale below is a root mean square; a norm's output has root mean square one."""

import re
from dataclasses import replace
from functools import lru_cache
from math import sqrt

from helmsman.executor.checkpoint.random_values import Recipe, bit_generator
from helmsman.executor.checkpoint.tokenizer import printable_ids
from helmsman.executor.weights.computed_values import norm_of
from helmsman.lowering.bodies.per_layer_input import LAYER_GATE, LAYER_OUT, LAYER_PROJECTION, LAYER_TABLE
from helmsman.lowering.common_attention import latent_of
from helmsman.lowering.draft_head import FUSE
from helmsman.lowering.tensor import CONVOLUTIONS, Tensor
from helmsman.schemas.blocks.attention import Attention, LatentAttention
from helmsman.schemas.blocks.feed_forward import Experts, FeedForward
from helmsman.schemas.model import Model

STANDOUT = 4.0  # of printable tokens' rows over the others', in embedding and head
BRANCH = 2.0  # what a block's half adds to the residual stream, over an ordinary token's embedding
SCORE = 2.5  # standard deviation of attention scores
NATURAL_QK = 0.5  # queries and keys before their norm, where they have one: far from those behind it
POSITIONS = 2.0  # learned positions, over an ordinary token's embedding
MIXED = 0.5  # attention output for values of one: an average of a few of them
ACTIVATED = {
    "silu": 0.6,
    "gelu": 0.65,
    "gelu_tanh": 0.65,
    "relu": 0.7,
    "relu2": 1.2,
    "swiglu_oai": 1.0,
}  # of f(x), x of one; gated: times one
GATED = {"delta_out": 0.6, "scan_out": 1.0, "conv_out": 1.0}
"""The outcomes of mixers with states, behind their gates, for values of one."""
CHOICE = 2.0  # standard deviation of a router's logits: choices are spread over experts, and decided
CHOSEN = 0.6  # the weighted sum of the chosen experts, over one of them
ENTRANCES = (
    *("v", "delta_in", "delta_gate_a", "delta_gate", "delta_decay_a", "delta_decay", "delta_beta"),
    *("scan_in", "conv_in"),
    *("gate", "up", "experts_gate", "experts_up", "shared_gate", "shared_up", "shared_scale", LAYER_GATE),
)
"""Matrices that read norms, beside queries, keys and routers, or what such a matrix made of fewer values."""
LATENT_NORMS = ("q_norm", "kv_norm")
"""Norms of latent attention, which are of no hidden states."""
CORRECTION = 0.1
"""Standard deviation of what is added to scores for choosing experts."""
PROJECTED = 0.1  # of embeddings to inputs of layers: a norm follows
OUTLIER_ROWS = 6.0  # of the residual channels that stand out, in `o` and `down`
OUTLIER_NORM = 0.4  # their gains
LOUD_NORM = 3.0  # gains of other channels


BESIDE = {
    "sinks": Recipe(1.0),
    "block_scale": Recipe(0.1, mean=0.9),
    "router_scale": Recipe(0.2, mean=1.0),
    "expert_scale": Recipe(0.2, mean=1.0),
    "delta_rate": Recipe(0.7, mean=-1.5),
    "delta_offset": Recipe(0.5, mean=-1.0),
    "delta_norm": Recipe(0.2, mean=1.0),
    "scan_rate": Recipe(0.7, mean=-1.5),
    "scan_offset": Recipe(0.5, mean=-1.0),
    "scan_pass": Recipe(0.2, mean=0.5),
    "scan_norm": Recipe(0.2, mean=1.0),
}
"""The distributions of vectors that operations store beside matrices: their means change nothing, and their deviations
are large enough to show in logits."""
_NUMBERED = re.compile(r"(?:post_)?norm\d")
"""Names of norms around bodies."""


def recipe(model: Model, tensor: Tensor) -> Recipe:
    """How to draw `tensor` of `model`."""
    op, part = tensor.name.split(".")
    if op in BESIDE:
        return BESIDE[op]
    if op.endswith("norm") or _NUMBERED.fullmatch(op):
        made = _norm(model, tensor, op, part)
        norm = norm_of(model, tensor)
        return replace(made, shift=-1.0) if norm is not None and norm.offset else made
    if part == "bias":
        return _bias(model, op)
    if op in CONVOLUTIONS:
        return Recipe(tensor.shape[-1] ** -0.5)
    if tensor.layer is None:
        return _table(model, op)
    return _linear(model, tensor, op)


def _table(model: Model, op: str) -> Recipe:
    """Rows of length about one: logits of ordinary tokens then have a standard deviation of one."""
    unit = _unit(model)
    if op == "positions":
        return Recipe(POSITIONS * unit)
    if op == LAYER_PROJECTION:
        return Recipe(PROJECTED)
    if op == LAYER_TABLE and model.per_layer_table is not None:
        return Recipe(model.per_layer_table.width**-0.5)
    return Recipe(unit, row_factors=tuple((row, STANDOUT) for row in printable_ids(model)))


def _linear(model: Model, tensor: Tensor, op: str) -> Recipe:
    latent = latent_of(model, tensor.layer)
    if latent is not None and op in latent_inputs(model.hidden, latent):
        scored = 1.0 if op in ("q_a", "v_b") else SCORE
        return Recipe(sqrt(scored / latent_inputs(model.hidden, latent)[op]))
    if op == "correction":
        return Recipe(CORRECTION)
    if op in ("q", "k"):
        return Recipe((NATURAL_QK if _attention(model, tensor).qk_norm else sqrt(SCORE)) / sqrt(model.hidden))
    if op == FUSE:
        return Recipe(_unit(model) / sqrt(2 * model.hidden))
    if op == "router":
        return Recipe(CHOICE / sqrt(model.hidden))
    if op in ENTRANCES:
        return Recipe(1.0 / sqrt(tensor.shape[-1]))
    if op == LAYER_OUT:
        return Recipe(tensor.shape[-1] ** -0.5)
    source, gated = MIXED, True
    if op in GATED:
        columns, source = tensor.shape[-1], GATED[op]
    elif op == "o":
        columns = latent.heads * latent.value_dim if latent is not None else _attention(model, tensor).q_width
    else:
        network = _network(model, op)
        columns, source, gated = network.width, ACTIVATED[network.activation], network.gated
        source *= CHOSEN if isinstance(network, Experts) else 1.0
    # Of experts that are drawn together rows have other numbers.
    outliers = () if tensor.stacked and _joint(model) else tuple((row, OUTLIER_ROWS) for row in _outliers(model))
    # Ungated activations have a mean, which would add the same vector at every position and drown the rest.
    balanced = op in ("down", "experts_down", "shared_down") and not gated
    return Recipe(_branch(model) / source / sqrt(columns), balanced=balanced, row_factors=outliers)


def latent_inputs(hidden: int, body: LatentAttention) -> dict[str, int]:
    """Return how many values each projection of latent attention adds up, by operation."""
    return {
        "q": hidden,
        "q_a": hidden,
        "q_b": body.query_rank or hidden,
        "kv_a": hidden,
        "k_b": body.latent,
        "v_b": body.latent,
    }


def _network(model: Model, op: str) -> FeedForward | Experts:
    """Return the network whose last matrix an operation is."""
    bodies = (body.op for layout in model.layouts for body in layout.bodies)
    for body in bodies:
        if isinstance(body, FeedForward) and op == "down":
            return body
        if isinstance(body, Experts) and op == "experts_down":
            return body
        if isinstance(body, Experts) and body.shared is not None and op == "shared_down":
            return body.shared
    raise AssertionError(f"no network of {model.name} has {op}")


def _bias(model: Model, op: str) -> Recipe:
    """Large enough to be missed, small enough not to decide alone."""
    if op in ("o", "down", "experts_down"):
        return Recipe(0.1 * _branch(model))
    return Recipe(0.3 if op in ("q", "k") else 0.1)


def _norm(model: Model, tensor: Tensor, op: str, part: str) -> Recipe:
    """Gains around one with outliers. The final gain's random signs keep a tied head from repeating its input; norms
    after bodies make what these add."""
    if op in LATENT_NORMS and latent_of(model, tensor.layer) is not None:
        return Recipe(0.2, mean=1.0)
    if op in ("q_norm", "k_norm"):
        attention = _attention(model, tensor)
        gain = sqrt(SCORE / (attention.scale * sqrt(attention.head_dim)))
        return Recipe(0.2 * gain, mean=gain)
    if part == "bias":
        return Recipe(0.1)
    if op.startswith("post_norm"):
        added = _branch(model) * model.embedding.scale
        return Recipe(0.2 * added, mean=added)
    quiet = dict.fromkeys(_outliers(model), OUTLIER_NORM)
    loud = dict.fromkeys(_channels(model, f"{op}.loud"), LOUD_NORM)
    return Recipe(0.2, 1.0, random_sign=op == "final_norm", row_factors=tuple((loud | quiet).items()))


def _attention(model: Model, tensor: Tensor) -> Attention:
    attention = model.attention(tensor.layer or 0)
    assert attention is not None, "families whose layers all attend"
    return attention


def _joint(model: Model) -> bool:
    """Whether files have the experts of a layer in one tensor."""
    return model.family in ("gpt_oss", "gemma4_text", "qwen3_5_moe_text")


def _unit(model: Model) -> float:
    return 1.0 / sqrt(model.hidden)


def _branch(model: Model) -> float:
    return BRANCH * _unit(model)


def _outliers(model: Model) -> tuple[int, ...]:
    return _channels(model, "outliers")


@lru_cache(maxsize=64)
def _channels(model: Model, purpose: str) -> tuple[int, ...]:
    """About one channel in 256, the same in every block."""
    raw = bit_generator(0, purpose).random_raw(max(1, model.hidden // 256))
    return tuple(sorted({int(value) % model.hidden for value in raw}))
