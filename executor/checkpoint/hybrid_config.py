"""The fields of `config.json` that models with states have: Qwen3-Next and 3.5, Kimi-Linear, LFM2, Nemotron-H."""

from collections.abc import Iterator
from typing import Any, TypeVar

from helmsman.executor.checkpoint.kimi_config import kimi_fields
from helmsman.schemas.blocks.attention import Attention
from helmsman.schemas.blocks.feed_forward import Experts, FeedForward
from helmsman.schemas.blocks.recurrent import DeltaRule, ShortConvolution, StateSpace
from helmsman.schemas.model import Model

HYBRID_FAMILIES = ("kimi_linear", "lfm2", "lfm2_moe", "nemotron_h", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next")
"""Families whose checkpoints are written with these fields."""
HYBRID_TEXT = {"qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text"}
"""By the family of a model of text beside others, that of the text model alone."""

_KINDS = {"attention": "full_attention", "delta-rule": "linear_attention", "short-convolution": "conv"}
_CHARACTERS = {"state-space": "mamba", "attention": "attention", "feed-forward": "mlp", "experts": "moe"}

OpT = TypeVar("OpT")


def hybrid_fields(model: Model) -> dict[str, Any]:
    """Return mixers by layer, heads, norms, rotation and networks."""
    if model.family == "kimi_linear":
        return kimi_fields(model)
    attention = first_body(model, Attention)
    assert attention is not None and model.final is not None, "families with attention and a final norm"
    fields: dict[str, Any] = {
        "num_key_value_heads": attention.kv_heads,
        "attention_dropout": 0.0,
        **({} if attention.rope is None else {"rope_theta": attention.rope.theta}),
    }
    if model.family == "nemotron_h":
        return {**fields, **_nemotron(model, attention)}
    kinds = [_KINDS[block.bodies[0].op.kind] for block in model.blocks]
    if model.family in ("lfm2", "lfm2_moe"):
        return {**fields, "layer_types": kinds, **_lfm2(model)}
    return {**fields, "layer_types": kinds, **_qwen(model, attention)}


def _bodies(model: Model) -> Iterator[Any]:
    yield from (body.op for block in model.blocks for body in block.bodies)


def first_body(model: Model, kind: type[OpT]) -> OpT | None:
    """Return the first body of a kind; None where no block has one."""
    return next((op for op in _bodies(model) if isinstance(op, kind)), None)


def _qwen(model: Model, attention: Attention) -> dict[str, Any]:
    delta, experts, network = first_body(model, DeltaRule), first_body(model, Experts), first_body(model, FeedForward)
    assert delta is not None and attention.rope is not None and model.final is not None, "a family with both"
    share = attention.rope.rotary_dim / attention.head_dim
    theta = {"rope_type": "default", "rope_theta": attention.rope.theta, "partial_rotary_factor": share}
    fields: dict[str, Any] = {
        "hidden_act": "silu",
        "rms_norm_eps": model.final.eps,
        "head_dim": attention.head_dim,
        "attention_bias": attention.qkv_bias,
        "rope_parameters": theta,
        "linear_num_key_heads": delta.key_heads,
        "linear_num_value_heads": delta.value_heads,
        "linear_key_head_dim": delta.key_dim,
        "linear_value_head_dim": delta.value_dim,
        "linear_conv_kernel_dim": delta.taps,
    }
    if model.drafts:
        fields["mtp_num_hidden_layers"] = sum(draft.count for draft in model.drafts)
    if network is not None:
        fields["intermediate_size"] = network.width
    if experts is None:
        return fields
    assert experts.shared is not None, "a family with a shared network"
    fields |= {
        "num_experts": experts.experts,
        "num_experts_per_tok": experts.chosen,
        "moe_intermediate_size": experts.width,
        "shared_expert_intermediate_size": experts.shared.width,
    }
    if model.family != "qwen3_next":
        return fields
    dense = [layer for layer, block in enumerate(model.blocks) if isinstance(block.bodies[1].op, FeedForward)]
    normalised = experts.router.normalised
    return {**fields, "norm_topk_prob": normalised, "mlp_only_layers": dense, "decoder_sparse_step": 1}


def _lfm2(model: Model) -> dict[str, Any]:
    convolution, experts = first_body(model, ShortConvolution), first_body(model, Experts)
    network = first_body(model, FeedForward)
    assert convolution is not None and model.final is not None, "a family with convolutions"
    fields: dict[str, Any] = {
        "norm_eps": model.final.eps,
        "conv_L_cache": convolution.taps,
        "conv_bias": convolution.bias,
    }
    if network is not None:
        fields["intermediate_size"] = network.width
    if experts is None:
        return {**fields, "block_auto_adjust_ff_dim": False}
    return {
        **fields,
        "num_dense_layers": sum(isinstance(op, FeedForward) for op in _bodies(model)),
        "num_experts": experts.experts,
        "num_experts_per_tok": experts.chosen,
        "moe_intermediate_size": experts.width,
        "use_expert_bias": experts.router.correction,
        "norm_topk_prob": experts.router.normalised,
        "routed_scaling_factor": experts.router.scaling,
    }


def _nemotron(model: Model, attention: Attention) -> dict[str, Any]:
    space, experts, network = first_body(model, StateSpace), first_body(model, Experts), first_body(model, FeedForward)
    assert space is not None and model.final is not None, "a family with state spaces"
    fields: dict[str, Any] = {
        "layers_block_type": [_CHARACTERS[block.bodies[0].op.kind] for block in model.blocks],
        "layer_norm_epsilon": model.final.eps,
        "head_dim": attention.head_dim,
        "mlp_hidden_act": "relu2",
        "mamba_num_heads": space.heads,
        "mamba_head_dim": space.head_dim,
        "ssm_state_size": space.state,
        "n_groups": space.groups,
        "conv_kernel": space.taps,
        "use_conv_bias": space.conv_bias,
        "use_bias": space.bias,
    }
    if network is not None:
        fields["intermediate_size"] = network.width
    if experts is None:
        return fields
    assert experts.shared is not None, "a family with a shared network"
    groups = experts.router.groups
    return {
        **fields,
        "n_routed_experts": experts.experts,
        "num_experts_per_tok": experts.chosen,
        "moe_intermediate_size": experts.width,
        "moe_shared_expert_intermediate_size": experts.shared.width,
        "n_group": 1 if groups is None else groups.count,
        "topk_group": 1 if groups is None else groups.kept,
        "norm_topk_prob": experts.router.normalised,
        "routed_scaling_factor": experts.router.scaling,
    }
