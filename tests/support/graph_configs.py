"""Small transformers configs of every family that captured graphs are tested with."""

from typing import Any

_COMMON: dict[str, Any] = {
    "vocab_size": 259,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "bos_token_id": None,
    "eos_token_id": 2,
    "pad_token_id": None,
    "initializer_range": 0.3,
}
_GROUPED = {**_COMMON, "num_key_value_heads": 2, "intermediate_size": 80}
_GPT2 = {"vocab_size": 259, "n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 128, "initializer_range": 0.3}

GRAPH_CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": {**_GPT2, "bos_token_id": None, "eos_token_id": 2},
    "gpt_neox": {**_COMMON, "intermediate_size": 80, "rotary_pct": 0.5},
    "llama": {**_GROUPED, "attention_bias": True, "mlp_bias": True},
    "mistral": {**_GROUPED, "sliding_window": 100},
    "opt": {**_COMMON, "ffn_dim": 80, "word_embed_proj_dim": 48, "init_std": 0.3},
    "phi3": {**_GROUPED, "partial_rotary_factor": 0.5},
    "qwen2": {**_GROUPED, "tie_word_embeddings": True},
    "qwen3": {**_GROUPED, "head_dim": 20, "tie_word_embeddings": True},
}
"""One of every family that a Model can describe, by its model_type."""
