"""What GGUF files call tensors, by architecture."""

from collections.abc import Mapping

from helmsman.hwdb.file_names.rule import NameRule, NameTable, Root, fused, plain, split

_ROOTS = (Root("", "blk.{layer}."),)
_ENDS = plain({"embedding": "token_embd", "final_norm": "output_norm"})
_HEAD = plain({"head": "output"})

_QKV = plain({"q": "attn_q", "k": "attn_k", "v": "attn_v"})
_FUSED_QKV = fused("attn_qkv", "q", "k", "v")
_OUT = plain({"o": "attn_output", "norm1": "attn_norm"})
_QK_NORM = plain({"q_norm": "attn_q_norm", "k_norm": "attn_k_norm"})
_ATTENTION = (*_QKV, *_OUT)
_NETWORK = plain({"gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down"})
_NORM2 = plain({"norm2": "ffn_norm"})
_POST_NORM2 = plain({"norm2": "post_attention_norm"})
"""The norm before the network, which converters call as the checkpoint does."""

_EXPERTS = (
    *plain(
        {
            "router": "ffn_gate_inp",
            "experts_gate": "ffn_gate_exps",
            "experts_up": "ffn_up_exps",
            "experts_down": "ffn_down_exps",
        }
    ),
    fused("ffn_gate_up_exps", "experts_gate", "experts_up"),
)
_CORRECTION = plain({"correction.weight": "exp_probs_b.bias"})
_SHARED = plain({"shared_gate": "ffn_gate_shexp", "shared_up": "ffn_up_shexp", "shared_down": "ffn_down_shexp"})
_SANDWICH = plain({"post_norm1": "post_attention_norm", "norm2": "ffn_norm", "post_norm2": "post_ffw_norm"})
_LATENT = (
    *plain(
        {
            "q": "attn_q",
            "q_a": "attn_q_a",
            "q_norm": "attn_q_a_norm",
            "q_b": "attn_q_b",
            "kv_a": "attn_kv_a_mqa",
            "kv_norm": "attn_kv_a_norm",
            "o": "attn_output",
            "norm1": "attn_norm",
        }
    ),
    NameRule(("k_b",), ("attn_k_b",)),
    NameRule(("v_b",), ("attn_v_b",)),
    fused("attn_kv_b", "k_b", "v_b", layout="latent"),
)
_DELTA = plain(
    {
        "delta_in": "attn_qkv",
        "delta_gate": "attn_gate",
        "delta_conv": "ssm_conv1d",
        "delta_rate.weight": "ssm_a",
        "delta_offset.weight": "ssm_dt.bias",
        "delta_norm": "ssm_norm",
        "delta_out": "ssm_out",
    }
)
_STATE_SPACE = plain(
    {
        "scan_in": "ssm_in",
        "scan_conv": "ssm_conv1d",
        "scan_rate.weight": "ssm_a",
        "scan_offset.weight": "ssm_dt.bias",
        "scan_pass.weight": "ssm_d",
        "scan_norm": "ssm_norm",
        "scan_out": "ssm_out",
    }
)
_CONVOLUTION = plain({"conv_in": "shortconv.in_proj", "conv": "shortconv.conv", "conv_out": "shortconv.out_proj"})
_KIMI_DELTA = (
    *plain(
        {
            "delta_gate_a": "ssm_g_a",
            "delta_gate": "ssm_g_b",
            "delta_decay_a": "ssm_f_a",
            "delta_decay": "ssm_f_b",
            "delta_beta": "ssm_beta",
            "delta_rate.weight": "ssm_a",
            "delta_offset.weight": "ssm_dt.bias",
            "delta_norm": "ssm_norm",
            "delta_out": "attn_output",
        }
    ),
    split("delta_in", "attn_q", "attn_k", "attn_v"),
    split("delta_conv", "ssm_conv1d_q", "ssm_conv1d_k", "ssm_conv1d_v"),
)
_INDEXER = plain(
    {
        "index_q": "indexer.attn_q_b",
        "index_k": "indexer.attn_k",
        "index_weights": "indexer.proj",
        "index_k_norm": "indexer.k_norm",
    }
)
_GEMMA4_ENDS = plain(
    {
        "layer_table": "per_layer_token_embd",
        "layer_projection": "per_layer_model_proj",
        "layer_projection_norm": "per_layer_proj_norm",
    }
)
_GEMMA4 = (*_ATTENTION, *_QK_NORM, *_NETWORK, *plain({"block_scale": "layer_output_scale"}))


def _table(*blocks: NameRule, ends: tuple[NameRule, ...] = _ENDS) -> NameTable:
    return NameTable(_ROOTS, ends, blocks, _HEAD)


GGUF_TABLES: Mapping[str, NameTable] = {
    "deepseek2": _table(*_LATENT, *_NORM2, *_NETWORK, *_EXPERTS, *_CORRECTION, *_SHARED),
    # Its converter leaves the part out of the name of one norm.
    "falcon-h1": _table(
        *_ATTENTION, *plain({"norm2.weight": "ffn_norm"}), *_NORM2, *_NETWORK, *_STATE_SPACE
    ),
    "gemma2": _table(*_ATTENTION, *_SANDWICH, *_NETWORK),
    "gemma3": _table(*_ATTENTION, *_QK_NORM, *_SANDWICH, *_NETWORK),
    "gemma4": _table(
        *_GEMMA4,
        *_SANDWICH,
        *plain({"post_norm3": "post_norm", "layer_gate": "inp_gate", "layer_out": "proj"}),
        ends=(*_ENDS, *_GEMMA4_ENDS),
    ),
    "gemma4-experts": _table(
        *_GEMMA4,
        fused("ffn_gate_up_exps", "experts_gate", "experts_up"),
        *_EXPERTS,
        *plain(
            {
                "router_scale.weight": "ffn_gate_inp.scale",
                "expert_scale.weight": "ffn_down_exps.scale",
                "post_norm1": "post_attention_norm",
                "norm2": "ffn_norm",
                "post_norm2": "post_ffw_norm_1",
                "norm3": "pre_ffw_norm_2",
                "post_norm3": "post_ffw_norm_2",
                "post_norm4": "post_ffw_norm",
            }
        ),
    ),
    "glm-dsa": _table(*_LATENT, *_INDEXER, *_NORM2, *_NETWORK, *_EXPERTS, *_CORRECTION, *_SHARED),
    "glm4moe": _table(*_ATTENTION, *_QK_NORM, *_POST_NORM2, *_NETWORK, *_EXPERTS, *_CORRECTION, *_SHARED),
    "gpt-oss": _table(*_ATTENTION, *_POST_NORM2, *_EXPERTS, *plain({"sinks": "attn_sinks"})),
    "granite": _table(*_ATTENTION, *_NORM2, *_NETWORK, *_EXPERTS, *_SHARED, *_STATE_SPACE),
    "kimi-linear": _table(*_LATENT, *_KIMI_DELTA, *_NORM2, *_NETWORK, *_EXPERTS, *_CORRECTION, *_SHARED),
    "lfm2": _table(
        *_ATTENTION, *_QK_NORM, *_NORM2, *_NETWORK, *_EXPERTS, *_CORRECTION, *_CONVOLUTION,
        ends=plain({"embedding": "token_embd", "final_norm": "token_embd_norm"}),
    ),
    "llama": _table(*_ATTENTION, *_NORM2, *_NETWORK, *_EXPERTS),
    "llama4": _table(*_ATTENTION, *_NORM2, *_NETWORK, *_EXPERTS, *_SHARED),
    "minimax-m2": _table(*_ATTENTION, *_QK_NORM, *_NORM2, *_EXPERTS, *_CORRECTION),
    "nemotron_h": _table(
        *_ATTENTION, *_NETWORK, *_STATE_SPACE, *_EXPERTS, *_CORRECTION, *_SHARED,
        *plain({"latent_in": "ffn_latent_down", "latent_out": "ffn_latent_up"}),
    ),
    "olmoe": _table(*_ATTENTION, *_QK_NORM, *_NORM2, *_EXPERTS),
    "phi3": _table(_FUSED_QKV, *_OUT, *_NORM2, fused("ffn_up", "gate", "up"), *plain({"down": "ffn_down"})),
    "phimoe": _table(*_QKV, _FUSED_QKV, *_OUT, *_NORM2, *_EXPERTS),
    "qwen3": _table(*_ATTENTION, *_QK_NORM, *_NORM2, *_NETWORK, *_EXPERTS),
    "qwen35": _table(
        *_ATTENTION, *_QK_NORM, *_POST_NORM2, *_NETWORK, *_EXPERTS, *_SHARED, *_DELTA,
        *plain({"delta_decay": "ssm_alpha", "delta_beta": "ssm_beta", "shared_scale": "ffn_gate_inp_shexp"}),
    ),
    "qwen3next": _table(
        *_ATTENTION, *_QK_NORM, *_POST_NORM2, *_EXPERTS, *_SHARED, *_DELTA,
        fused("ssm_ba", "delta_beta", "delta_decay", layout="heads"),
        fused("ssm_in", "delta_in", "delta_gate", layout="heads"),
        *plain({"shared_scale": "ffn_gate_inp_shexp"}),
    ),
}  # fmt: skip
"""By the name of an architecture, or by that of one of those that have the same names."""

_BY_FAMILY: Mapping[str, str] = {
    "deepseek_v2": "deepseek2",
    "deepseek_v3": "deepseek2",
    "falcon_h1": "falcon-h1",
    "gemma2": "gemma2",
    "gemma3": "gemma3",
    "gemma3_text": "gemma3",
    "gemma4": "gemma4",
    "gemma4_text": "gemma4",
    "glm4_moe": "glm4moe",
    "glm4_moe_lite": "deepseek2",
    "glm_moe_dsa": "glm-dsa",
    "gpt_oss": "gpt-oss",
    "granite": "granite",
    "granitemoe": "granite",
    "granitemoehybrid": "granite",
    "granitemoeshared": "granite",
    "kimi_k2": "deepseek2",
    "kimi_k25": "deepseek2",
    "kimi_linear": "kimi-linear",
    "lfm2": "lfm2",
    "lfm2_moe": "lfm2",
    "llama": "llama",
    "llama4": "llama4",
    "llama4_text": "llama4",
    "minimax_m2": "minimax-m2",
    "mistral": "llama",
    "mixtral": "llama",
    "nemotron_h": "nemotron_h",
    "olmoe": "olmoe",
    "phi3": "phi3",
    "phimoe": "phimoe",
    "qwen2": "llama",
    "qwen3": "qwen3",
    "qwen3_5": "qwen35",
    "qwen3_5_moe": "qwen35",
    "qwen3_5_moe_text": "qwen35",
    "qwen3_5_text": "qwen35",
    "qwen3_moe": "qwen3",
    "qwen3_next": "qwen3next",
}


def gguf_table(family: str, routed: bool) -> NameTable | None:
    """Return the names of a family, which may be others where it has experts; None where GGUF has none."""
    architecture = _BY_FAMILY.get(family)
    if architecture is None:
        return None
    with_experts = GGUF_TABLES.get(f"{architecture}-experts") if routed else None
    return with_experts or GGUF_TABLES[architecture]
