"""The metadata of GGUF files as llama.cpp's converters write it for a `config.json`, key by key."""

from collections.abc import Callable, Mapping
from typing import Any

Config = Mapping[str, Any]
Metadata = dict[str, Any]

ARCHITECTURES = {
    "deepseek_v2": "deepseek2",
    "deepseek_v3": "deepseek2",
    "falcon_h1": "falcon-h1",
    "gemma2": "gemma2",
    "gemma3_text": "gemma3",
    "gemma4_text": "gemma4",
    "glm4_moe": "glm4moe",
    "glm4_moe_lite": "deepseek2",
    "glm_moe_dsa": "glm-dsa",
    "gpt_oss": "gpt-oss",
    "granitemoehybrid": "granitehybrid",
    "kimi_linear": "kimi-linear",
    "lfm2": "lfm2",
    "lfm2_moe": "lfm2moe",
    "llama4_text": "llama4",
    "minimax_m2": "minimax-m2",
    "mixtral": "llama",
    "nemotron_h": "nemotron_h",
    "olmoe": "olmoe",
    "phimoe": "phimoe",
    "qwen3_5_moe_text": "qwen35moe",
    "qwen3_5_text": "qwen35",
    "qwen3_moe": "qwen3moe",
    "qwen3_next": "qwen3next",
}
SIGMOID = 2
_SIGMOID_FAMILIES = ("deepseek_v3", "glm4_moe", "glm4_moe_lite", "glm_moe_dsa", "kimi_linear", "lfm2_moe", "minimax_m2")
_ALIASES = {
    "num_experts_per_token": "num_experts_per_tok",
    "top_k_experts": "num_experts_per_tok",
    "num_local_experts": "n_experts",
    "num_experts": "n_experts",
    "n_routed_experts": "n_experts",
    "norm_eps": "rms_norm_eps",
    "layer_norm_epsilon": "rms_norm_eps",
    "model_max_length": "max_position_embeddings",
    "num_shared_experts": "n_shared_experts",
    "moe_renormalize": "norm_topk_prob",
}


def metadata(config: Config) -> Metadata:
    """Keys and values of the file of a model: int, float, bool, str, or a list of ints or of bools."""
    family = config["model_type"]
    name = ARCHITECTURES[family] + ("_moe" if family == "nemotron_h" and "n_routed_experts" in config else "")
    facts = {_ALIASES.get(key, key): value for key, value in config.items()}
    own = _common(facts)
    own |= _rope(facts)
    own |= _FAMILIES.get(family, lambda _: {})(facts)
    if family in _SIGMOID_FAMILIES:
        own["expert_gating_func"] = SIGMOID
    return {
        "general.architecture": name,
        "general.name": "tiny",
        **{f"{name}.{key}": value for key, value in own.items() if value is not None},
        "tokenizer.ggml.eos_token_id": 2,
    }


def _common(facts: Config) -> Metadata:
    """What every converter writes of what a config has."""
    drafts = facts.get("num_nextn_predict_layers", facts.get("mtp_num_hidden_layers", 0))
    result: Metadata = {
        "block_count": facts["num_hidden_layers"] + drafts,
        "context_length": facts["max_position_embeddings"],
        "embedding_length": facts["hidden_size"],
        "vocab_size": facts["vocab_size"],
        "nextn_predict_layers": drafts or None,
    }
    names = {
        "intermediate_size": "feed_forward_length",
        "num_attention_heads": "attention.head_count",
        "num_key_value_heads": "attention.head_count_kv",
        "rms_norm_eps": "attention.layer_norm_rms_epsilon",
        "n_experts": "expert_count",
        "num_experts_per_tok": "expert_used_count",
        "n_group": "expert_group_count",
        "topk_group": "expert_group_used_count",
        "moe_intermediate_size": "expert_feed_forward_length",
        "n_shared_experts": "expert_shared_count",
        "first_k_dense_replace": "leading_dense_block_count",
        "routed_scaling_factor": "expert_weights_scale",
        "norm_topk_prob": "expert_weights_norm",
        "sliding_window": "attention.sliding_window",
        "clip_qkv": "attention.clamp_kqv",
        "attn_logit_softcapping": "attn_logit_softcapping",
        "final_logit_softcapping": "final_logit_softcapping",
        "head_dim": "attention.key_length",
    }
    result |= {gguf: facts[key] for key, gguf in names.items() if facts.get(key) is not None}
    if "head_dim" in facts:
        result["attention.value_length"] = facts["head_dim"]
    return result


def _rope(facts: Config) -> Metadata:
    parameters = facts.get("rope_parameters", {})
    full = parameters.get("full_attention", parameters)
    result: Metadata = {"rope.freq_base": full.get("rope_theta", facts.get("rope_theta"))}
    if result["rope.freq_base"] is not None:
        result["rope.freq_base"] = float(result["rope.freq_base"])
    if "sliding_attention" in parameters:
        result["rope.freq_base_swa"] = float(parameters["sliding_attention"]["rope_theta"])
    if "mrope_section" in parameters:
        result["rope.dimension_sections"] = [*parameters["mrope_section"], 0]
    share = facts.get("partial_rotary_factor", full.get("partial_rotary_factor"))
    if share is not None and full is parameters and "head_dim" in facts:
        result["rope.dimension_count"] = int(facts["head_dim"] * share)
    scaling = facts.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind in ("linear", "yarn"):
        result |= {"rope.scaling.type": kind, "rope.scaling.factor": float(scaling["factor"])}
    if kind == "yarn":
        result["rope.scaling.original_context_length"] = scaling["original_max_position_embeddings"]
        for key in ("beta_fast", "beta_slow"):
            result[f"rope.scaling.yarn_{key}"] = float(scaling[key]) if key in scaling else None
        if "mscale_all_dim" in scaling:
            result["rope.scaling.yarn_log_multiplier"] = 0.1 * scaling["mscale_all_dim"]
    return result


def _latent(facts: Config) -> Metadata:
    rope, rank = facts["qk_rope_head_dim"], facts["kv_lora_rank"]
    return {
        "attention.head_count_kv": 1,
        "attention.q_lora_rank": facts.get("q_lora_rank"),
        "attention.kv_lora_rank": rank,
        "attention.key_length": rank + rope,
        "attention.value_length": rank,
        "attention.key_length_mla": facts["qk_nope_head_dim"] + rope,
        "attention.value_length_mla": facts["v_head_dim"],
        "rope.dimension_count": rope,
    }


def _glm_dsa(facts: Config) -> Metadata:
    return {
        **_latent(facts),
        "attention.indexer.head_count": facts["index_n_heads"],
        "attention.indexer.key_length": facts["index_head_dim"],
        "attention.indexer.top_k": facts["index_topk"],
    }


def _kimi(facts: Config) -> Metadata:
    linear = facts["linear_attn_config"]
    layers = range(1, facts["num_hidden_layers"] + 1)
    return {
        **_latent(facts),
        "attention.head_count_kv": [int(layer in linear["full_attn_layers"]) for layer in layers],
        "ssm.conv_kernel": linear["short_conv_kernel_size"],
        "kda.head_dim": linear["head_dim"],
    }


def _delta(facts: Config) -> Metadata:
    return {
        "ssm.conv_kernel": facts["linear_conv_kernel_dim"],
        "ssm.state_size": facts["linear_key_head_dim"],
        "ssm.group_count": facts["linear_num_key_heads"],
        "ssm.time_step_rank": facts["linear_num_value_heads"],
        "ssm.inner_size": facts["linear_value_head_dim"] * facts["linear_num_value_heads"],
        "full_attention_interval": 4,
        "expert_shared_feed_forward_length": facts.get("shared_expert_intermediate_size"),
        "expert_weights_norm": None,
    }


def _mamba(heads: int, dim: int, facts: Config, state: str, groups: str, taps: str) -> Metadata:
    return {
        "ssm.conv_kernel": facts[taps],
        "ssm.state_size": facts[state],
        "ssm.group_count": facts[groups],
        "ssm.inner_size": heads * dim,
        "ssm.time_step_rank": heads,
    }


def _granite(facts: Config) -> Metadata:
    sizes = _mamba(
        facts["mamba_n_heads"], facts["mamba_d_head"], facts, "mamba_d_state", "mamba_n_groups", "mamba_d_conv"
    )
    kv = facts["num_key_value_heads"]
    return {
        **sizes,
        "attention.head_count_kv": [kv if kind == "attention" else 0 for kind in facts["layer_types"]],
        "attention.scale": facts["attention_multiplier"],
        "embedding_scale": facts["embedding_multiplier"],
        "residual_scale": facts["residual_multiplier"],
        "logit_scale": facts["logits_scaling"],
        "expert_shared_feed_forward_length": facts["shared_intermediate_size"],
        "rope.scaling.finetuned": facts["position_embedding_type"] == "rope",
    }


def _falcon(facts: Config) -> Metadata:
    return _mamba(
        facts["mamba_n_heads"], facts["mamba_d_head"], facts, "mamba_d_state", "mamba_n_groups", "mamba_d_conv"
    )


def _nemotron(facts: Config) -> Metadata:
    pattern, kv = facts["hybrid_override_pattern"], facts["num_key_value_heads"]
    width = facts.get("moe_intermediate_size", facts["intermediate_size"])
    return {
        **_mamba(facts["mamba_num_heads"], facts["mamba_head_dim"], facts, "ssm_state_size", "n_groups", "conv_kernel"),
        "attention.head_count_kv": [kv if letter == "*" else 0 for letter in pattern],
        "feed_forward_length": [width if letter in "-E" else 0 for letter in pattern],
        "expert_shared_feed_forward_length": facts.get("moe_shared_expert_intermediate_size"),
        "moe_latent_size": facts.get("moe_latent_size"),
        "rope.scaling.finetuned": False,
    }


def _lfm2(facts: Config) -> Metadata:
    kv, width = facts["num_key_value_heads"], facts.get("block_ff_dim")
    result: Metadata = {
        "attention.head_count_kv": [kv if kind == "full_attention" else 0 for kind in facts["layer_types"]],
        "shortconv.l_cache": facts["conv_L_cache"],
    }
    if width is not None:
        multiple = facts["block_multiple_of"]
        result["feed_forward_length"] = -(-int(2 * width / 3) // multiple) * multiple
    return result


def _lfm2_moe(facts: Config) -> Metadata:
    return {
        **_lfm2(facts),
        "leading_dense_block_count": facts["num_dense_layers"],
        "expert_weights_norm": None,
        "expert_weights_scale": None,
    }


def _gemma3(facts: Config) -> Metadata:
    return {"attention.sliding_window_pattern": facts["sliding_window_pattern"]}


def _gemma4(facts: Config) -> Metadata:
    slides = [kind == "sliding_attention" for kind in facts["layer_types"]]
    shared, width = facts["num_kv_shared_layers"], facts["intermediate_size"]
    full_kv = facts.get("num_global_key_value_heads")
    kv = facts["num_key_value_heads"]
    own = facts["num_hidden_layers"] - shared
    double = facts.get("use_double_wide_mlp")
    return {
        "attention.shared_kv_layers": shared,
        "embedding_length_per_layer_input": facts["hidden_size_per_layer_input"],
        "attention.sliding_window_pattern": slides,
        "attention.key_length": facts["global_head_dim"],
        "attention.value_length": facts["global_head_dim"],
        "attention.key_length_swa": facts["head_dim"],
        "attention.value_length_swa": facts["head_dim"],
        "rope.dimension_count": facts["global_head_dim"],
        "rope.dimension_count_swa": facts["head_dim"],
        "feed_forward_length": [width] * own + [2 * width] * shared if double else width,
        "attention.head_count_kv": kv if full_kv is None else [kv if slid else full_kv for slid in slides],
    }


def _llama4(facts: Config) -> Metadata:
    return {
        "feed_forward_length": facts["intermediate_size_mlp"],
        "expert_feed_forward_length": facts["intermediate_size"],
        "interleave_moe_layer_step": facts["interleave_moe_layer_step"],
        "rope.dimension_count": facts["head_dim"],
    }


_FAMILIES: dict[str, Callable[[Config], Metadata]] = {
    "deepseek_v2": _latent,
    "deepseek_v3": _latent,
    "falcon_h1": _falcon,
    "gemma3_text": _gemma3,
    "gemma4_text": _gemma4,
    "glm4_moe_lite": _latent,
    "glm_moe_dsa": _glm_dsa,
    "gpt_oss": lambda facts: {"expert_feed_forward_length": facts["intermediate_size"]},
    "granitemoehybrid": _granite,
    "kimi_linear": _kimi,
    "lfm2": _lfm2,
    "lfm2_moe": _lfm2_moe,
    "llama4_text": _llama4,
    "minimax_m2": lambda facts: {
        "expert_feed_forward_length": facts["intermediate_size"],
        "rope.dimension_count": facts["rotary_dim"],
    },
    "nemotron_h": _nemotron,
    "qwen3_5_moe_text": _delta,
    "qwen3_5_text": _delta,
    "qwen3_next": _delta,
}
