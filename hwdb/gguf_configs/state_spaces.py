"""Nemotron-H, Granite 4, Falcon-H1 and LFM2: layers that files tell apart by heads and widths of 0."""

from helmsman.hwdb.gguf_configs.common import (
    RMS_EPS,
    SIGMOID,
    SOFTMAX,
    ConfigKeys,
    base,
    expert_width,
    experts,
    gating,
    group_keys,
    grouped,
    heads,
    scaled_weights,
)
from helmsman.hwdb.gguf_configs.facts import MAX_HEADS, MAX_LAYERS, GgufFacts

_ONES = {
    "embedding_multiplier": 1.0,
    "lm_head_multiplier": 1.0,
    "key_multiplier": 1.0,
    "attention_in_multiplier": 1.0,
    "attention_out_multiplier": 1.0,
    "ssm_in_multiplier": 1.0,
    "ssm_out_multiplier": 1.0,
    "mlp_multipliers": [1.0] * 2,
    "ssm_multipliers": [1.0] * 5,
}
"""Multipliers of Falcon-H1, with which files have multiplied its weights."""


def nemotron_h(facts: GgufFacts) -> ConfigKeys:
    """Return a Nemotron-H: a layer has key heads, a network's width, or neither, and a state space then."""
    fields = facts.fields
    attends = facts.per_layer("attention.head_count_kv", high=MAX_HEADS)
    widths = facts.per_layer("feed_forward_length")
    routed = fields.integer("expert_count", 0, low=0) > 0
    pattern = [
        "*" if kv else ("E" if routed else "-") if width else "M" for kv, width in zip(attends, widths, strict=True)
    ]
    eps = "attention.layer_norm_epsilon" if fields.has("attention.layer_norm_epsilon") else RMS_EPS
    # Nothing turns, whatever the file's rotation.
    fields.read.update((RMS_EPS, "rope.freq_base", "rope.scaling.type"))
    config = base(facts, "nemotron_h", eps)
    result = {
        **config,
        "layer_norm_epsilon": config["rms_norm_eps"],
        "hybrid_override_pattern": "".join(pattern),
        **{key: value for key, value in heads(facts).items() if key != "attention_bias"},
        **_mamba(facts, "mamba_num_heads", "mamba_head_dim", "ssm_state_size", "n_groups", "conv_kernel"),
        "use_conv_bias": facts.has_tensor("ssm_conv1d.bias"),
        "use_bias": facts.has_tensor("ssm_in.bias"),
        "intermediate_size": max(widths) or None,
    }
    return {**result, **_relu2_experts(facts)} if routed else result


def _relu2_experts(facts: GgufFacts) -> ConfigKeys:
    fields = facts.fields
    gating(facts, SIGMOID)
    latent = fields.integer("moe_latent_size", 0, low=0)
    return {
        **experts(facts, "n_routed_experts"),
        **group_keys(facts),
        **scaled_weights(facts, True),
        "moe_intermediate_size": expert_width(facts),
        "moe_shared_expert_intermediate_size": fields.integer("expert_shared_feed_forward_length"),
        "n_shared_experts": fields.integer("expert_shared_count", 1),
        "moe_latent_size": latent or None,
        "num_nextn_predict_layers": facts.drafts,
        "mtp_hybrid_override_pattern": "*E" if facts.drafts else None,
    }


def _mamba(facts: GgufFacts, count: str, dim: str, state: str, groups: str, taps: str) -> ConfigKeys:
    """Return the sizes of a state space under the names that a family gives them."""
    fields = facts.fields
    number, inner = fields.integer("ssm.time_step_rank", high=MAX_HEADS), fields.integer("ssm.inner_size")
    if inner % number:
        raise fields.wrong("ssm.inner_size", f"must be a multiple of ssm.time_step_rank ({number})", "correct it")
    return {
        count: number,
        dim: inner // number,
        state: fields.integer("ssm.state_size"),
        groups: fields.integer("ssm.group_count", high=MAX_HEADS),
        taps: fields.integer("ssm.conv_kernel", low=2, high=64),
    }


_MAMBA_NAMES = ("mamba_n_heads", "mamba_d_head", "mamba_d_state", "mamba_n_groups", "mamba_d_conv")


def granite_hybrid(facts: GgufFacts) -> ConfigKeys:
    """Return a Granite 4 hybrid: layers without key heads have state spaces."""
    attends = facts.per_layer("attention.head_count_kv", high=MAX_HEADS)
    sizes = _mamba(facts, *_MAMBA_NAMES)
    inner, hidden = sizes["mamba_n_heads"] * sizes["mamba_d_head"], facts.fields.integer("embedding_length")
    if inner % hidden:
        message = f"not covered: must be a multiple of embedding_length ({hidden})"
        raise facts.fields.wrong("ssm.inner_size", message, "choose another model")
    return {
        **_granite(facts),
        **sizes,
        "mamba_expand": inner // hidden,
        "mamba_conv_bias": facts.has_tensor("ssm_conv1d.bias"),
        "mamba_proj_bias": facts.has_tensor("ssm_in.bias"),
        "layer_types": ["attention" if kv else "mamba" for kv in attends],
        "position_embedding_type": "rope" if facts.fields.flag("rope.scaling.finetuned", False) else "nope",
    }


def granite(facts: GgufFacts) -> ConfigKeys:
    """Return a Granite whose layers all have attention, described as a hybrid without state spaces.

    The sizes of these are those of no layer: a reader of hybrids asks for some."""
    hidden = facts.fields.integer("embedding_length")
    return {
        **_granite(facts),
        **dict(zip(_MAMBA_NAMES, (2, hidden, 1, 1, 2), strict=True)),
        "mamba_expand": 2,
        "layer_types": ["attention"] * facts.layers,
        "position_embedding_type": "rope",
    }


def _granite(facts: GgufFacts) -> ConfigKeys:
    fields = facts.fields
    shared_key = "expert_shared_feed_forward_length"
    width = facts.only("feed_forward_length")
    routed = fields.integer("expert_count", 0, low=0) > 0
    result = {
        **grouped(facts, "granitemoehybrid"),
        "embedding_multiplier": fields.real("embedding_scale", 1.0),
        "residual_multiplier": fields.real("residual_scale", 1.0),
        "attention_multiplier": fields.real("attention.scale"),
        "logits_scaling": fields.real("logit_scale", 1.0),
        "shared_intermediate_size": fields.integer(shared_key) if fields.has(shared_key) else width,
        "num_local_experts": 0,
    }
    if not routed:
        fields.read.add("expert_used_count")
        return result
    gating(facts, SOFTMAX)
    return {**result, **experts(facts, "num_local_experts"), "intermediate_size": expert_width(facts)}


def falcon_h1(facts: GgufFacts) -> ConfigKeys:
    """Return a Falcon-H1 whose weights are multiplied already, so that its multipliers are ones."""
    sizes = _mamba(facts, *_MAMBA_NAMES)
    return {
        **grouped(facts, "falcon_h1"),
        **_ONES,
        **sizes,
        "mamba_d_ssm": sizes["mamba_n_heads"] * sizes["mamba_d_head"],
        "mamba_conv_bias": facts.has_tensor("ssm_conv1d.bias"),
        "mamba_proj_bias": facts.has_tensor("ssm_in.bias"),
        "mamba_rms_norm": facts.has_tensor("ssm_norm.weight"),
        "mamba_norm_before_gate": False,
        "mlp_bias": facts.has_tensor("ffn_up.bias"),
        "intermediate_size": facts.only("feed_forward_length"),
    }


def lfm2(facts: GgufFacts) -> ConfigKeys:
    """Return a dense LFM2, whose width files state as it is."""
    width = facts.only("feed_forward_length")
    return {**_convolutions(facts, "lfm2"), "block_ff_dim": width, "block_auto_adjust_ff_dim": False}


def lfm2_moe(facts: GgufFacts) -> ConfigKeys:
    """Return an LFM2 with experts."""
    fields = facts.fields
    gating(facts, SIGMOID)
    return {
        **_convolutions(facts, "lfm2_moe"),
        **experts(facts),
        **scaled_weights(facts, True),
        "intermediate_size": facts.only("feed_forward_length"),
        "moe_intermediate_size": expert_width(facts),
        "num_dense_layers": fields.integer("leading_dense_block_count", 0, low=0, high=MAX_LAYERS),
        "use_expert_bias": facts.has_tensor("exp_probs_b.bias"),
    }


def _convolutions(facts: GgufFacts, model_type: str) -> ConfigKeys:
    attends = facts.per_layer("attention.head_count_kv", high=MAX_HEADS)
    config = grouped(facts, model_type)
    eps = config.pop("rms_norm_eps")
    return {
        **{key: value for key, value in config.items() if key != "attention_bias"},
        "norm_eps": eps,
        "layer_types": ["full_attention" if kv else "conv" for kv in attends],
        "conv_L_cache": facts.fields.integer("shortconv.l_cache", low=2, high=64),
        "conv_bias": facts.has_tensor("shortconv.conv.bias"),
    }
