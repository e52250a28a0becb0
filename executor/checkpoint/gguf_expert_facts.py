"""The metadata of a GGUF file that models with routed experts have, beside the tokenizer's."""

from typing import Any

from helmsman.lowering.common_attention import common_attention
from helmsman.schemas.blocks.feed_forward import Experts, FeedForward
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.model import Model

_WIDTH = ("qwen3_moe",)
"""Families whose files state the width of experts beside that of dense networks."""

_NORMALISED = ("olmoe", "qwen3_moe")
"""Families whose files may state whether the weights of experts are normalised."""


def expert_facts(model: Model) -> dict[str, Any]:
    """Return keys without the architecture's prefix, in order.

    Raises BadInputError for blocks that files of these architectures do not have: some without experts, or a rotation
    that is scaled."""
    attention, experts = common_attention(model), _experts(model)
    rope = attention.rope
    assert rope is not None and model.final is not None, "families with both"
    if rope.scaling is not None:
        message, remedy = "scaled rotation in a file with experts", "choose a model without"
        raise BadInputError(message, field="model.position", value=rope.scaling.kind, remedy=remedy)
    result: dict[str, Any] = {
        "context_length": model.max_context,
        "embedding_length": model.hidden,
        "block_count": model.layers,
        "feed_forward_length": experts.width,
        "attention.head_count": attention.heads,
        "attention.head_count_kv": attention.kv_heads,
        "attention.key_length": attention.head_dim,
        "attention.value_length": attention.value_dim,
        "attention.layer_norm_rms_epsilon": model.final.eps,
        "vocab_size": model.vocab,
        "expert_count": experts.experts,
        "expert_used_count": experts.chosen,
        "rope.freq_base": rope.theta,
        "rope.dimension_count": rope.rotary_dim,
    }
    if model.family in _WIDTH:
        result["expert_feed_forward_length"] = experts.width
    if model.family in _NORMALISED:
        result["expert_weights_norm"] = experts.router.normalised
    if attention.window is not None:
        result["attention.sliding_window"] = attention.window
    return result


def _experts(model: Model) -> Experts:
    bodies = [body.op for layout in model.layouts for body in layout.bodies]
    if any(isinstance(body, FeedForward) for body in bodies):
        message, remedy = "blocks without experts among others", "choose a model whose blocks all have experts"
        raise BadInputError(message, field="model.pattern", value=model.pattern[:40], remedy=remedy)
    return next(body for body in bodies if isinstance(body, Experts))
