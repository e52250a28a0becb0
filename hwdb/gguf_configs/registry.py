"""The translations by architecture, and the account of metadata: each key is read, known to be without effect on
inference, or refused."""

from collections.abc import Callable, Mapping

from helmsman.hwdb.config_fields import Fields
from helmsman.hwdb.gguf_configs import experts, gemma, latent, qwen_next, state_spaces
from helmsman.hwdb.gguf_configs.common import ConfigKeys
from helmsman.hwdb.gguf_configs.facts import GgufFacts
from helmsman.schemas.errors import BadInputError

TRANSLATIONS: Mapping[str, Callable[[GgufFacts], ConfigKeys]] = {
    "deepseek2": latent.deepseek2,
    "falcon-h1": state_spaces.falcon_h1,
    "gemma2": gemma.gemma2,
    "gemma3": gemma.gemma3,
    "gemma4": gemma.gemma4,
    "glm-dsa": latent.glm_dsa,
    "glm4moe": experts.glm4_moe,
    "gpt-oss": experts.gpt_oss,
    "granite": state_spaces.granite,
    "granitehybrid": state_spaces.granite_hybrid,
    "granitemoe": state_spaces.granite,
    "kimi-linear": latent.kimi_linear,
    "lfm2": state_spaces.lfm2,
    "lfm2moe": state_spaces.lfm2_moe,
    "llama": experts.mixtral,
    "llama4": experts.llama4,
    "minimax-m2": experts.minimax_m2,
    "nemotron_h": state_spaces.nemotron_h,
    "nemotron_h_moe": state_spaces.nemotron_h,
    "olmoe": experts.olmoe,
    "phimoe": experts.phimoe,
    "qwen35": qwen_next.qwen35,
    "qwen35moe": qwen_next.qwen35_moe,
    "qwen3moe": experts.qwen3_moe,
    "qwen3next": qwen_next.qwen3_next,
}
"""What gives the keys of a `config.json`, by the name that GGUF gives an architecture; `llama` with experts."""

WITHOUT_EFFECT = frozenset(
    [
        "expert_count",
        "expert_used_count",
        "rope.dimension_count",
        "rope.dimension_sections",
        "rope.scaling.attn_factor",
        "rope.scaling.finetuned",
        "rope.scaling.original_context_length",
        "tensor_data_layout",
        "vocab_size",
    ]
)
"""Keys that change nothing where the architecture's translation does not read them: sizes that others repeat, sections
of positions of images, and what belongs to a scaling that the file does not have."""

_ONE_VALUE: Mapping[str, tuple[object, ...]] = {
    "attention.causal": (True,),
    "attention.sliding_window": (0,),
    "expert_group_count": (0, 1),
    "expert_group_used_count": (0, 1),
    "expert_shared_count": (0,),
    "logit_scale": (1.0,),
    "nextn_predict_layers": (0,),
    "use_parallel_residual": (False,),
}
"""Keys that change nothing at these values."""

ORIGINS: Mapping[str, str] = {
    "conv_L_cache": "shortconv.l_cache",
    "first_k_dense_replace": "leading_dense_block_count",
    "head_dim": "attention.key_length",
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "kv_lora_rank": "attention.kv_lora_rank",
    "linear_conv_kernel_dim": "ssm.conv_kernel",
    "linear_key_head_dim": "ssm.state_size",
    "linear_num_key_heads": "ssm.group_count",
    "linear_num_value_heads": "ssm.time_step_rank",
    "max_position_embeddings": "context_length",
    "moe_intermediate_size": "expert_feed_forward_length",
    "n_group": "expert_group_count",
    "n_routed_experts": "expert_count",
    "n_shared_experts": "expert_shared_count",
    "num_attention_heads": "attention.head_count",
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "num_experts_per_token": "expert_used_count",
    "num_hidden_layers": "block_count",
    "num_key_value_heads": "attention.head_count_kv",
    "num_local_experts": "expert_count",
    "partial_rotary_factor": "rope.dimension_count",
    "q_lora_rank": "attention.q_lora_rank",
    "sliding_window": "attention.sliding_window",
    "top_k_experts": "expert_used_count",
    "topk_group": "expert_group_used_count",
}
"""Keys of the metadata that give keys of a `config.json`, for errors that are about these."""


def translated(facts: GgufFacts, architecture: str) -> ConfigKeys:
    """Return the content of a `config.json`, without what the file does not have. Raises BadInputError for a key that
    nobody reads and that may have an effect."""
    config = TRANSLATIONS[architecture](facts)
    check_metadata(facts.fields, architecture)
    # A rank of queries that there is not must be said: its absence means another one.
    return {
        key: value
        for key, value in config.items()
        if value is not None or key in ("q_lora_rank", "attention_chunk_size")
    }


def check_metadata(metadata: Fields, architecture: str) -> None:
    """Raise BadInputError for the first key of the metadata that may change the model and that nobody read."""
    for fields, key in metadata.unread():
        if key in WITHOUT_EFFECT or fields.content[key] in _ONE_VALUE.get(key, ()):
            continue
        raise fields.wrong(
            key, f"not covered in {architecture}: a key that may change the model", "choose another model"
        )


def renamed(error: BadInputError, facts: GgufFacts) -> BadInputError:
    """Return the error about a key of a `config.json` as one about the key of the metadata that gave it."""
    key = ORIGINS.get(error.field or "")
    if key is not None and facts.fields.has(key):
        error.field = facts.fields.within + key
    return error
