"""The fields of `config.json` that Kimi-Linear has: delta rules and latent attention by layer, experts."""

from typing import Any

from helmsman.schemas.blocks.attention import LatentAttention
from helmsman.schemas.blocks.block import BodyKind
from helmsman.schemas.blocks.feed_forward import Experts, FeedForward
from helmsman.schemas.blocks.recurrent import DeltaRule
from helmsman.schemas.model import Model


def kimi_fields(model: Model) -> dict[str, Any]:
    """Return mixers by layer, which are counted from 1, and networks."""
    bodies = [body.op for block in model.blocks for body in block.bodies]
    latent = next(op for op in bodies if isinstance(op, LatentAttention))
    assert model.final is not None, "a family with a final norm"
    return {
        "hidden_act": "silu",
        "rms_norm_eps": model.final.eps,
        "num_key_value_heads": latent.heads,
        "q_lora_rank": latent.query_rank,
        "kv_lora_rank": latent.latent,
        "qk_nope_head_dim": latent.nope_dim,
        "qk_rope_head_dim": latent.rope_dim,
        "v_head_dim": latent.value_dim,
        "mla_use_nope": True,
        "linear_attn_config": _delta(model, bodies),
        **_networks(bodies),
    }


def _delta(model: Model, bodies: list[BodyKind]) -> dict[str, Any]:
    rule = next(op for op in bodies if isinstance(op, DeltaRule))
    linear = [layer for layer, block in enumerate(model.blocks, 1) if isinstance(block.bodies[0].op, DeltaRule)]
    return {
        "kda_layers": linear,
        "full_attn_layers": [layer for layer in range(1, model.layers + 1) if layer not in linear],
        "num_heads": rule.value_heads,
        "head_dim": rule.value_dim,
        "short_conv_kernel_size": rule.taps,
    }


def _networks(bodies: list[BodyKind]) -> dict[str, Any]:
    dense = [op for op in bodies if isinstance(op, FeedForward)]
    experts = next(op for op in bodies if isinstance(op, Experts))
    router, groups = experts.router, experts.router.groups
    return {
        "intermediate_size": dense[0].width if dense else experts.width,
        "moe_intermediate_size": experts.width,
        "num_experts": experts.experts,
        "num_experts_per_token": experts.chosen,
        "num_shared_experts": 0 if experts.shared is None else experts.shared.width // experts.width,
        "num_expert_group": 1 if groups is None else groups.count,
        "topk_group": 1 if groups is None else groups.kept,
        "moe_router_activation_func": router.score,
        "moe_renormalize": router.normalised,
        "routed_scaling_factor": router.scaling,
        "first_k_dense_replace": len(dense),
        "moe_layer_freq": 1,
    }
