"""The fields of `config.json` that models of latent attention have."""

from math import log, sqrt
from typing import Any

from helmsman.schemas.blocks.attention import LatentAttention
from helmsman.schemas.blocks.feed_forward import Experts, FeedForward, Router
from helmsman.schemas.blocks.positions import YarnScaling
from helmsman.schemas.model import Model

_GROWTH = 0.1
"""YaRN lets attention grow by this part of the logarithm of its factor."""


def latent_fields(model: Model, attention: LatentAttention) -> dict[str, Any]:
    """Return heads, ranks, norms, rotation, dense layers and experts."""
    bodies = [[body.op for body in block.bodies] for block in model.blocks]
    dense = [next((op for op in ops if isinstance(op, FeedForward)), None) for ops in bodies]
    experts = next((op for ops in bodies for op in ops if isinstance(op, Experts)), None)
    assert model.final is not None, "families with a final norm"
    first = next(iter(op for op in dense if op is not None), None)
    fields: dict[str, Any] = {
        "hidden_act": "silu",
        "rms_norm_eps": model.final.eps,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "num_key_value_heads": attention.heads,
        "q_lora_rank": attention.query_rank,
        "kv_lora_rank": attention.latent,
        "qk_nope_head_dim": attention.nope_dim,
        "qk_rope_head_dim": attention.rope_dim,
        "v_head_dim": attention.value_dim,
        "num_nextn_predict_layers": sum(draft.count for draft in model.drafts),
        "first_k_dense_replace": sum(op is not None for op in dense),
        "moe_layer_freq": 1,
        **_rotation(attention),
    }
    if experts is not None:
        fields |= _experts(experts)
    width = first.width if first is not None else fields.get("moe_intermediate_size", 0)
    routing = {} if experts is None else _routing(model.family, experts.router)
    return {**fields, **routing, "intermediate_size": width}


def _experts(experts: Experts) -> dict[str, Any]:
    shared = 0 if experts.shared is None else experts.shared.width // experts.width
    return {
        "n_routed_experts": experts.experts,
        "num_experts_per_tok": experts.chosen,
        "moe_intermediate_size": experts.width,
        "n_shared_experts": shared,
        "routed_scaling_factor": experts.router.scaling,
    }


def _routing(family: str, router: Router) -> dict[str, Any]:
    groups = router.groups
    counts = {"n_group": 1 if groups is None else groups.count, "topk_group": 1 if groups is None else groups.kept}
    if family == "deepseek_v2":
        return {**counts, "topk_method": "greedy" if groups is None else "group_limited_greedy"}
    return {**counts, "norm_topk_prob": router.normalised, "scoring_func": "sigmoid", "topk_method": "noaux_tc"}


def _rotation(attention: LatentAttention) -> dict[str, Any]:
    rope = attention.rope
    assert rope is not None, "families whose heads turn"
    pairs = {} if rope.pairs == "interleaved" else {"rope_interleave": False}
    fields: dict[str, Any] = {"rope_theta": rope.theta, "rope_scaling": None, **pairs}
    if isinstance(rope.scaling, YarnScaling):
        fields["rope_scaling"] = _yarn(attention, rope.scaling)
    return fields


def _yarn(attention: LatentAttention, scaling: YarnScaling) -> dict[str, Any]:
    """Return YaRN's fields; the weights of the logarithm are those that give the scale of scores and the magnitude of
    the rotation."""
    growth = sqrt(attention.scale * sqrt(attention.compared))
    per_weight = _GROWTH * log(scaling.factor)
    return {
        "type": "yarn",
        "factor": scaling.factor,
        "original_max_position_embeddings": scaling.original_context,
        "beta_fast": scaling.beta_fast,
        "beta_slow": scaling.beta_slow,
        "truncate": scaling.truncate,
        "attention_factor": scaling.magnitude,
        "mscale_all_dim": (growth - 1) / per_weight,
    }
