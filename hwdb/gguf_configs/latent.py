"""DeepSeek V2 and V3, Kimi-K2, GLM-4.7-Flash, GLM-5 and Kimi-Linear: latent attention, which files state as attention
with one key head."""

from helmsman.hwdb.gguf_configs.common import (
    SIGMOID,
    SOFTMAX,
    ConfigKeys,
    base,
    expert_width,
    experts,
    gating,
    group_keys,
    rotation,
    scaled_weights,
)
from helmsman.hwdb.gguf_configs.facts import MAX_HEADS, MAX_LAYERS, GgufFacts


def deepseek2(facts: GgufFacts) -> ConfigKeys:
    """Return a DeepSeek V2, or a V3 and its relatives, whose scores are sigmoids."""
    if gating(facts, SOFTMAX, SIGMOID) == SOFTMAX:
        groups = group_keys(facts)
        method = "group_limited_greedy" if groups["n_group"] > 1 else "greedy"
        return {**_latent(facts, "deepseek_v2"), **_routed(facts), "topk_method": method, **groups}
    return _v3(facts, "deepseek_v3")


def glm_dsa(facts: GgufFacts) -> ConfigKeys:
    """Return a GLM-5; layers without tensors of an indexer share what the last one chose."""
    fields = facts.fields
    gating(facts, SIGMOID)
    own = [facts.has_tensor("indexer.attn_k.weight", layer) for layer in range(facts.layers)]
    fields.read.update(("attention.indexer.types",))
    return {
        **_v3(facts, "glm_moe_dsa"),
        "index_n_heads": fields.integer("attention.indexer.head_count", high=MAX_HEADS),
        "index_head_dim": fields.integer("attention.indexer.key_length", high=MAX_HEADS),
        "index_topk": fields.integer("attention.indexer.top_k"),
        "indexer_types": ["full" if has else "shared" for has in own],
    }


def kimi_linear(facts: GgufFacts) -> ConfigKeys:
    """Return a Kimi-Linear: layers without key heads have delta rules. Nothing turns, whatever the file's rotation."""
    fields = facts.fields
    gating(facts, SIGMOID)
    fields.read.update(("rope.freq_base", "rope.scaling.type", "expert_weights_norm"))
    heads = facts.only("attention.head_count", high=MAX_HEADS)
    full = [number > 0 for number in facts.per_layer("attention.head_count_kv", high=MAX_HEADS)]
    weights = scaled_weights(facts, True)
    result = {
        **base(facts, "kimi_linear"),
        **_parts(facts),
        "num_attention_heads": heads,
        "linear_attn_config": {
            "full_attn_layers": [layer + 1 for layer, has in enumerate(full) if has],
            "kda_layers": [layer + 1 for layer, has in enumerate(full) if not has],
            "num_heads": heads,
            "head_dim": fields.integer("kda.head_dim", high=MAX_HEADS),
            "short_conv_kernel_size": fields.integer("ssm.conv_kernel", low=2, high=64),
        },
        **experts(facts, "num_experts", "num_experts_per_token"),
        "intermediate_size": facts.only("feed_forward_length"),
        "moe_intermediate_size": expert_width(facts),
        "num_shared_experts": fields.integer("expert_shared_count", 0, low=0),
        "first_k_dense_replace": fields.integer("leading_dense_block_count", 0, low=0, high=MAX_LAYERS),
        "moe_renormalize": weights["norm_topk_prob"],
        "routed_scaling_factor": weights["routed_scaling_factor"],
    }
    groups = group_keys(facts)
    return {**result, "num_expert_group": groups["n_group"], "topk_group": groups["topk_group"]}


def _v3(facts: GgufFacts, model_type: str) -> ConfigKeys:
    return {
        **_latent(facts, model_type),
        **_routed(facts),
        **group_keys(facts),
        **scaled_weights(facts, False),
        "num_nextn_predict_layers": facts.drafts,
    }


def _latent(facts: GgufFacts, model_type: str) -> ConfigKeys:
    heads = facts.only("attention.head_count", high=MAX_HEADS)
    facts.per_layer("attention.head_count_kv", 1, high=MAX_HEADS)
    result = {**base(facts, model_type), **_parts(facts), **rotation(facts), "num_attention_heads": heads}
    return {**result, "attention_bias": False}


def _parts(facts: GgufFacts) -> ConfigKeys:
    """Return ranks and parts of a head; older files state a head's own lengths as those of keys and values."""
    fields = facts.fields
    rope = fields.integer("rope.dimension_count", high=MAX_HEADS)
    whole = fields.has("attention.key_length_mla")
    if whole:
        fields.read.update(("attention.key_length", "attention.value_length"))
    key, value = (f"attention.{name}_length{'_mla' if whole else ''}" for name in ("key", "value"))
    compared = fields.integer(key, high=MAX_HEADS)
    if compared <= rope:
        raise fields.wrong(key, f"must be more than rope.dimension_count ({rope})", "correct one of the two")
    rank = fields.integer("attention.q_lora_rank", 0, low=0)
    return {
        "q_lora_rank": rank or None,
        "kv_lora_rank": fields.integer("attention.kv_lora_rank"),
        "qk_nope_head_dim": compared - rope,
        "qk_rope_head_dim": rope,
        "v_head_dim": fields.integer(value, high=MAX_HEADS),
    }


def _routed(facts: GgufFacts) -> ConfigKeys:
    fields = facts.fields
    fields.read.add("expert_weights_norm")
    return {
        **experts(facts, "n_routed_experts"),
        "intermediate_size": facts.only("feed_forward_length"),
        "moe_intermediate_size": expert_width(facts),
        "n_shared_experts": fields.integer("expert_shared_count", 0, low=0),
        "first_k_dense_replace": fields.integer("leading_dense_block_count", 0, low=0, high=MAX_LAYERS),
        "routed_scaling_factor": fields.real("expert_weights_scale", 1.0),
    }
