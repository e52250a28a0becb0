"""Qwen3-Next, Qwen3.5 and 3.6: gated delta rules in most layers, whose sizes files call those of a state space."""

from helmsman.hwdb.gguf_configs.common import (
    SOFTMAX,
    ConfigKeys,
    expert_width,
    experts,
    gating,
    grouped,
    share_of_head,
)
from helmsman.hwdb.gguf_configs.facts import MAX_HEADS, MAX_LAYERS, GgufFacts

_FULL, _LINEAR = "full_attention", "linear_attention"


def qwen3_next(facts: GgufFacts) -> ConfigKeys:
    """Return a Qwen3-Next; files mean scores that are divided by their sum."""
    norm = facts.fields.flag("expert_weights_norm", True)
    return {**_hybrid(facts, "qwen3_next"), **_experts(facts), "norm_topk_prob": norm}


def qwen35_moe(facts: GgufFacts) -> ConfigKeys:
    """Return the text model of a Qwen3.5 or 3.6 with experts."""
    return {**_hybrid(facts, "qwen3_5_moe_text"), **_experts(facts), "mtp_num_hidden_layers": facts.drafts}


def qwen35(facts: GgufFacts) -> ConfigKeys:
    """Return the text model of a dense Qwen3.5 or 3.6."""
    width = facts.only("feed_forward_length")
    return {**_hybrid(facts, "qwen3_5_text"), "intermediate_size": width, "mtp_num_hidden_layers": facts.drafts}


def _hybrid(facts: GgufFacts, model_type: str) -> ConfigKeys:
    fields = facts.fields
    result = {**grouped(facts, model_type), **share_of_head(facts)}
    heads = fields.integer("ssm.time_step_rank", high=MAX_HEADS)
    inner = fields.integer("ssm.inner_size")
    if inner % heads:
        raise fields.wrong("ssm.inner_size", f"must be a multiple of ssm.time_step_rank ({heads})", "correct it")
    return {
        **result,
        "linear_num_value_heads": heads,
        "linear_value_head_dim": inner // heads,
        "linear_num_key_heads": fields.integer("ssm.group_count", high=MAX_HEADS),
        "linear_key_head_dim": fields.integer("ssm.state_size", high=MAX_HEADS),
        "linear_conv_kernel_dim": fields.integer("ssm.conv_kernel", low=2, high=64),
        "layer_types": _kinds(facts),
    }


def _kinds(facts: GgufFacts) -> list[str]:
    """Return the kind of every layer: an array, or every so many layers full attention."""
    fields = facts.fields
    if fields.has("attention.recurrent_layers"):
        return [_LINEAR if recurs else _FULL for recurs in facts.flags("attention.recurrent_layers")]
    interval = fields.integer("full_attention_interval", 4, high=MAX_LAYERS)
    return [_LINEAR if (layer + 1) % interval else _FULL for layer in range(facts.layers)]


def _experts(facts: GgufFacts) -> ConfigKeys:
    fields = facts.fields
    fields.read.update(("feed_forward_length", "expert_shared_count"))
    gating(facts, SOFTMAX)
    return {
        **experts(facts),
        "moe_intermediate_size": expert_width(facts),
        "shared_expert_intermediate_size": fields.integer("expert_shared_feed_forward_length"),
    }
