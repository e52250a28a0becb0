"""What Hugging Face's checkpoints call tensors, by family: as released files do, then as transformers 5 saves them."""

from collections.abc import Mapping

from helmsman.hwdb.file_names.checkpoint_hybrids import GRANITE, KIMI, LFM2, NEMOTRON, QWEN3_NEXT, QWEN35
from helmsman.hwdb.file_names.checkpoint_parts import (
    ATTENTION,
    DECODER_ENDS,
    HEAD,
    INDEXER,
    LATENT,
    NETWORK,
    NORMS,
    QK_NORM,
    QWEN_EXPERTS,
    V3_EXPERTS,
    experts,
    renamed,
    shared,
    state_space,
)
from helmsman.hwdb.file_names.deepseek_v4 import DEEPSEEK_V4
from helmsman.hwdb.file_names.rule import NameRule, NameTable, Root, fused, plain, shaped

_MODEL = Root("model.", "model.layers.{layer}.")
_AROUND = (
    Root("model.language_model.", "model.language_model.layers.{layer}."),
    Root("language_model.model.", "language_model.model.layers.{layer}.", "language_model."),
    _MODEL,
)
"""Where the names of a text model begin that has others beside it."""


def _table(
    *blocks: NameRule, roots: tuple[Root, ...] = (_MODEL,), ends: tuple[NameRule, ...] = DECODER_ENDS
) -> NameTable:
    return NameTable(roots, ends, blocks, HEAD)


_PHI3 = (
    fused("self_attn.qkv_proj", "q", "k", "v"),
    fused("mlp.gate_up_proj", "gate", "up"),
    *plain({"o": "self_attn.o_proj", "down": "mlp.down_proj"}),
)
_OPT = NameTable(
    (Root("model.decoder.", "model.decoder.layers.{layer}."),),
    plain(
        {
            "embedding": "embed_tokens",
            "positions": "embed_positions",
            "embedding_out": "project_in",
            "final_norm": "final_layer_norm",
            "head_in": "project_out",
        }
    ),
    plain(
        {
            "q": "self_attn.q_proj",
            "k": "self_attn.k_proj",
            "v": "self_attn.v_proj",
            "o": "self_attn.out_proj",
            "up": "fc1",
            "down": "fc2",
            "norm1": "self_attn_layer_norm",
            "norm2": "final_layer_norm",
            "after_norm1": "self_attn_layer_norm",
            "after_norm2": "final_layer_norm",
        }
    ),
    HEAD,
)
_MIXTRAL = (
    *plain({"router": "block_sparse_moe.gate", "correction.weight": "block_sparse_moe.e_score_correction_bias"}),
    *experts("block_sparse_moe.experts", ("w1", "w3", "w2")),
    *plain({"correction.weight": "mlp.e_score_correction_bias"}),
)
_TRANSFORMERS_5 = (*plain({"router": "mlp.gate"}), *experts("mlp.experts")[3:])
"""The experts of most families as transformers 5 saves them."""

_GPT_OSS = (
    *plain({"router": "mlp.router", "sinks.weight": "self_attn.sinks"}),
    fused("mlp.experts.gate_up_proj", "experts_gate.weight", "experts_up.weight", layout="turns", form="transposed"),
    fused("mlp.experts.gate_up_proj_bias", "experts_gate.bias", "experts_up.bias", layout="turns"),
    shaped("experts_down.weight", "mlp.experts.down_proj", "transposed"),
    *plain({"experts_down.bias": "mlp.experts.down_proj_bias"}),
)
_GEMMA = plain(
    {
        "norm1": "input_layernorm",
        "post_norm1": "post_attention_layernorm",
        "norm2": "pre_feedforward_layernorm",
        "post_norm2": "post_feedforward_layernorm",
    }
)
_GEMMA4 = (*ATTENTION, *QK_NORM, *NETWORK, *plain({"block_scale.weight": "layer_scalar"}))
_GEMMA4_ENDS = (
    *DECODER_ENDS,
    *plain(
        {
            "layer_table": "embed_tokens_per_layer",
            "layer_projection": "per_layer_model_projection",
            "layer_projection_norm": "per_layer_projection_norm",
        }
    ),
)
_GEMMA4_INPUTS = plain(
    {
        "layer_gate": "per_layer_input_gate",
        "layer_out": "per_layer_projection",
        "post_norm3": "post_per_layer_input_norm",
    }
)
_GEMMA4_EXPERTS = (
    *plain(
        {
            "router": "router.proj",
            "router_scale.weight": "router.scale",
            "expert_scale.weight": "router.per_expert_scale",
            "norm1": "input_layernorm",
            "post_norm1": "post_attention_layernorm",
            "norm2": "pre_feedforward_layernorm",
            "post_norm2": "post_feedforward_layernorm_1",
            "norm3": "pre_feedforward_layernorm_2",
            "post_norm3": "post_feedforward_layernorm_2",
            "post_norm4": "post_feedforward_layernorm",
        }
    ),
    *experts("experts")[3:],
    *experts("experts")[:3],
)
_LLAMA4 = (
    *renamed(NETWORK, "mlp.", "feed_forward."),
    *plain({"router": "feed_forward.router"}),
    fused("feed_forward.experts.gate_up_proj", "experts_gate.weight", "experts_up.weight", form="transposed"),
    shaped("experts_down.weight", "feed_forward.experts.down_proj", "transposed"),
    *shared("feed_forward.shared_expert"),
)
_NEMOTRON_ROOTS = (Root("backbone.", "backbone.layers.{layer}."), _MODEL)
_LFM2_ENDS = plain({"embedding": "embed_tokens", "final_norm": "embedding_norm"})
_LLAMA = (*ATTENTION, *QK_NORM, *NETWORK, *NORMS)

_FAMILIES: Mapping[str, NameTable] = {
    "deepseek_v2": _table(*LATENT, *NETWORK, *NORMS, *V3_EXPERTS),
    "deepseek_v3": _table(*LATENT, *NETWORK, *NORMS, *V3_EXPERTS),
    "deepseek_v32": _table(*LATENT, *INDEXER, *NETWORK, *NORMS, *V3_EXPERTS),
    "deepseek_v4": DEEPSEEK_V4,
    "falcon_h1": _table(
        *ATTENTION, *renamed(NETWORK, "mlp.", "feed_forward."), *state_space("mamba"),
        *plain({"norm1": "input_layernorm", "norm2": "pre_ff_layernorm"}),
        ends=plain({"embedding": "embed_tokens", "final_norm": "final_layernorm"}),
    ),
    "gemma2": _table(*ATTENTION, *NETWORK, *_GEMMA),
    "gemma3": _table(*ATTENTION, *QK_NORM, *NETWORK, *_GEMMA, roots=_AROUND),
    "gemma3_text": _table(*ATTENTION, *QK_NORM, *NETWORK, *_GEMMA),
    "gemma4": _table(*_GEMMA4, *_GEMMA, *_GEMMA4_INPUTS, roots=_AROUND, ends=_GEMMA4_ENDS),
    "gemma4-experts": _table(*_GEMMA4, *_GEMMA4_EXPERTS, roots=_AROUND),
    "gemma4_text": _table(*_GEMMA4, *_GEMMA, *_GEMMA4_INPUTS, ends=_GEMMA4_ENDS),
    "gemma4_text-experts": _table(*_GEMMA4, *_GEMMA4_EXPERTS),
    "glm4_moe": _table(*_LLAMA, *V3_EXPERTS),
    "glm4_moe_lite": _table(*LATENT, *NETWORK, *NORMS, *V3_EXPERTS),
    "glm_moe_dsa": _table(*LATENT, *INDEXER, *NETWORK, *NORMS, *V3_EXPERTS),
    "gpt_oss": _table(*ATTENTION, *NORMS, *_GPT_OSS),
    "granite": _table(*_LLAMA),
    "granitemoe": _table(*GRANITE),
    "granitemoehybrid": _table(*GRANITE),
    "granitemoeshared": _table(*GRANITE),
    "kimi_k2": _table(*LATENT, *NETWORK, *NORMS, *V3_EXPERTS),
    "kimi_k25": _table(*LATENT, *NETWORK, *NORMS, *V3_EXPERTS, roots=(_AROUND[1], _AROUND[0], _MODEL)),
    "kimi_linear": _table(*LATENT, *KIMI, *NETWORK, *NORMS),
    "lfm2": _table(*LFM2, ends=_LFM2_ENDS),
    "lfm2_moe": _table(*LFM2, ends=_LFM2_ENDS),
    "llama": _table(*_LLAMA),
    "llama4": _table(*ATTENTION, *NORMS, *_LLAMA4, roots=(_AROUND[1], _AROUND[0], _MODEL)),
    "llama4_text": _table(*ATTENTION, *NORMS, *_LLAMA4),
    "minimax_m2": _table(*ATTENTION, *QK_NORM, *NORMS, *_MIXTRAL, *_TRANSFORMERS_5),
    "mixtral": _table(*ATTENTION, *NORMS, *_MIXTRAL, *_TRANSFORMERS_5),
    "nemotron_h": _table(
        *NEMOTRON, roots=_NEMOTRON_ROOTS, ends=plain({"embedding": "embeddings", "final_norm": "norm_f"})
    ),
    "olmoe": _table(*_LLAMA, *QWEN_EXPERTS),
    "opt": _OPT,
    "phi3": _table(*_PHI3, *NORMS),
    "phimoe": _table(*ATTENTION, *NORMS, *_MIXTRAL, *plain({"router": "mlp.router"}), *_TRANSFORMERS_5[1:]),
    "qwen3_5": _table(*_LLAMA, *QWEN35, roots=_AROUND),
    "qwen3_5_moe": _table(*_LLAMA, *QWEN35, roots=_AROUND),
    "qwen3_5_moe_text": _table(*_LLAMA, *QWEN35),
    "qwen3_5_text": _table(*_LLAMA, *QWEN35),
    "qwen3_moe": _table(*_LLAMA, *QWEN_EXPERTS),
    "qwen3_next": _table(*_LLAMA, *QWEN3_NEXT),
}  # fmt: skip


def checkpoint_table(family: str, routed: bool) -> NameTable:
    """Return the names of a family, which may be others where it has experts; Llama's for one without names of its
    own."""
    with_experts = _FAMILIES.get(f"{family}-experts") if routed else None
    return with_experts or _FAMILIES.get(family, _FAMILIES["llama"])
