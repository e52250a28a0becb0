"""Mixtral, Qwen3-MoE, OLMoE, MiniMax-M2, Phi-3.5-MoE, gpt-oss, GLM-4.5, Llama 4: grouped-query attention, experts."""

from math import log, sqrt

from helmsman.hwdb.gguf_configs.common import (
    SIGMOID,
    SOFTMAX,
    ConfigKeys,
    expert_width,
    experts,
    gating,
    group_keys,
    grouped,
    head_dim,
    scaled_weights,
    share_of_head,
)
from helmsman.hwdb.gguf_configs.facts import MAX_CONTEXT, MAX_LAYERS, GgufFacts

_LLAMA4_WITHOUT_QK_NORM = 128
"""Experts of the one Llama 4 whose queries and keys are not normed (Maverick); files do not say it."""


def mixtral(facts: GgufFacts) -> ConfigKeys:
    """Return a Mixtral, which files call llama."""
    window = facts.fields.integer("attention.sliding_window", 0, low=0, high=MAX_CONTEXT)
    gating(facts, SOFTMAX)
    return {
        **grouped(facts, "mixtral"),
        **experts(facts, "num_local_experts"),
        "intermediate_size": expert_width(facts),
        "sliding_window": window or None,
    }


def qwen3_moe(facts: GgufFacts) -> ConfigKeys:
    """Return a Qwen3 with experts in every layer; files mean scores that are divided by their sum."""
    facts.fields.read.add("feed_forward_length")
    gating(facts, SOFTMAX)
    return {
        **grouped(facts, "qwen3_moe"),
        **experts(facts),
        "moe_intermediate_size": expert_width(facts),
        "norm_topk_prob": facts.fields.flag("expert_weights_norm", True),
    }


def olmoe(facts: GgufFacts) -> ConfigKeys:
    """Return an OLMoE; files mean scores that are not divided by their sum."""
    fields = facts.fields
    gating(facts, SOFTMAX)
    return {
        **grouped(facts, "olmoe"),
        **experts(facts),
        "intermediate_size": expert_width(facts),
        "norm_topk_prob": fields.flag("expert_weights_norm", False),
        "clip_qkv": fields.optional_real("attention.clamp_kqv"),
    }


def minimax_m2(facts: GgufFacts) -> ConfigKeys:
    """Return a MiniMax-M2."""
    facts.fields.read.add("feed_forward_length")
    gating(facts, SIGMOID)
    dim = head_dim(facts)
    return {
        **grouped(facts, "minimax_m2"),
        **experts(facts, "num_local_experts"),
        "intermediate_size": expert_width(facts),
        "rotary_dim": facts.fields.integer("rope.dimension_count", dim, high=dim),
        "use_qk_norm": facts.has_tensor("attn_q_norm.weight"),
        "use_routing_bias": facts.has_tensor("exp_probs_b.bias"),
    }


def phimoe(facts: GgufFacts) -> ConfigKeys:
    """Return a Phi-3.5-MoE; the magnitude of its rotation is the file's, or what contexts give."""
    fields = facts.fields
    result = grouped(facts, "phimoe")
    scaling = result.get("rope_scaling")
    if scaling is not None:
        magnitude = fields.real("rope.scaling.attn_factor", _magnitude(result))
        scaling |= {"short_mscale": magnitude, "long_mscale": magnitude}
    return {
        **result,
        **experts(facts, "num_local_experts"),
        "intermediate_size": expert_width(facts),
        "sliding_window": fields.integer("attention.sliding_window", 0, low=0, high=MAX_CONTEXT) or None,
        "lm_head_bias": "output.bias" in facts.tensors,
    }


def _magnitude(config: ConfigKeys) -> float:
    original = config["rope_scaling"]["original_max_position_embeddings"]
    ratio = config["max_position_embeddings"] / original
    return sqrt(1 + log(ratio) / log(original)) if ratio > 1 and original > 1 else 1.0


def gpt_oss(facts: GgufFacts) -> ConfigKeys:
    """Return a gpt-oss. Files do not say that its YaRN leaves the ends of the blend unrounded."""
    fields = facts.fields
    fields.read.add("feed_forward_length")
    gating(facts, SOFTMAX)
    result = grouped(facts, "gpt_oss")
    if "rope_scaling" in result:
        result["rope_scaling"]["truncate"] = False
    return {
        **result,
        **experts(facts, "num_local_experts"),
        "intermediate_size": expert_width(facts),
        "sliding_window": fields.integer("attention.sliding_window", high=MAX_CONTEXT),
    }


def glm4_moe(facts: GgufFacts) -> ConfigKeys:
    """Return a GLM-4.5."""
    fields = facts.fields
    gating(facts, SIGMOID)
    return {
        **grouped(facts, "glm4_moe"),
        **share_of_head(facts),
        **experts(facts, "n_routed_experts"),
        **group_keys(facts),
        **scaled_weights(facts, True),
        "intermediate_size": facts.only("feed_forward_length"),
        "moe_intermediate_size": expert_width(facts),
        "n_shared_experts": fields.integer("expert_shared_count", 0, low=0),
        "first_k_dense_replace": fields.integer("leading_dense_block_count", 0, low=0, high=MAX_LAYERS),
        "use_qk_norm": facts.has_tensor("attn_q_norm.weight"),
        "num_nextn_predict_layers": facts.drafts,
    }


def llama4(facts: GgufFacts) -> ConfigKeys:
    """Return a Llama 4. Files say nothing of chunks, layers without positions and the temperature of their queries."""
    fields = facts.fields
    chunks = fields.integer("attention.sliding_window", 1, low=0, high=MAX_CONTEXT)
    width = expert_width(facts)
    result = {
        **grouped(facts, "llama4_text"),
        **experts(facts, "num_local_experts"),
        "intermediate_size": width,
        "intermediate_size_mlp": facts.only("feed_forward_length"),
        "interleave_moe_layer_step": fields.integer("interleave_moe_layer_step", high=MAX_LAYERS),
        "use_qk_norm": fields.integer("expert_count") != _LLAMA4_WITHOUT_QK_NORM,
    }
    return result if chunks else {**result, "attention_chunk_size": None}
