"""The fields of `config.json` that models with routed experts have."""

from typing import Any

from helmsman.lowering.common_attention import common_attention
from helmsman.schemas.blocks.block import Body
from helmsman.schemas.blocks.feed_forward import Experts, FeedForward
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.model import Model

EXPERT_FAMILIES = ("mixtral", "olmoe", "qwen3_moe")
"""Families of models with experts whose checkpoints are written."""
_WIDTH = {"mixtral": "intermediate_size", "olmoe": "intermediate_size", "qwen3_moe": "moe_intermediate_size"}
"""The key of a config that states the width of an expert, by family."""
_COUNT = {"mixtral": "num_local_experts", "olmoe": "num_experts", "qwen3_moe": "num_experts"}
"""The key of a config that states the number of experts, by family."""


def expert_fields(model: Model) -> dict[str, Any]:
    """Return heads, norms, rotation and experts.

    Raises BadInputError for a rotation that is scaled, which these checkpoints are not written with."""
    attention, experts, rope = common_attention(model), _experts(model), common_attention(model).rope
    assert rope is not None and model.final is not None, "families with both"
    if rope.scaling is not None or rope.rotary_dim != attention.head_dim:
        message, remedy = "scaled or partial rotation in a checkpoint with experts", "choose a model without"
        raise BadInputError(message, field="model.position", value=rope.rotary_dim, remedy=remedy)
    fields: dict[str, Any] = {
        "hidden_act": experts.activation,
        "num_key_value_heads": attention.kv_heads,
        "head_dim": attention.head_dim,
        "rms_norm_eps": model.final.eps,
        "attention_dropout": 0.0,
        "rope_theta": rope.theta,
        "rope_scaling": None,
        _COUNT[model.family]: experts.experts,
        "num_experts_per_tok": experts.chosen,
        _WIDTH[model.family]: experts.width,
        "sliding_window": attention.window,
    }
    if model.family == "mixtral":
        return fields
    fields |= {"attention_bias": attention.out_bias, "norm_topk_prob": experts.router.normalised}
    if model.family == "olmoe":
        return {**fields, "clip_qkv": attention.clip}
    routed = [any(isinstance(body.op, Experts) for body in block.bodies) for block in model.blocks]
    dense = [layer for layer, has in enumerate(routed) if not has]
    width = next((body.op.width for body in _bodies(model) if isinstance(body.op, FeedForward)), experts.width)
    return {**fields, "mlp_only_layers": dense, "decoder_sparse_step": 1, "intermediate_size": width}


def _bodies(model: Model) -> list[Body]:
    return [body for layout in model.layouts for body in layout.bodies]


def _experts(model: Model) -> Experts:
    return next(body.op for body in _bodies(model) if isinstance(body.op, Experts))
