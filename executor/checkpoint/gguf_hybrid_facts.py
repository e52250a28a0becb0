"""The metadata that `write_gguf` writes for models with recurrent states, beside the tokenizer's."""

from collections.abc import Callable, Mapping
from typing import Any

from helmsman.executor.checkpoint.gguf_state_facts import (
    delta_facts,
    falcon_facts,
    granite_facts,
    lfm2_facts,
    nemotron_facts,
)
from helmsman.executor.checkpoint.hybrid_config import first_body
from helmsman.schemas.blocks.attention import Attention
from helmsman.schemas.model import Model

HYBRIDS: Mapping[str, Callable[[Model], dict[str, Any]]] = {
    "falcon_h1": falcon_facts,
    "granitemoehybrid": granite_facts,
    "lfm2": lfm2_facts,
    "lfm2_moe": lfm2_facts,
    "nemotron_h": nemotron_facts,
    "qwen3_5_moe_text": delta_facts,
    "qwen3_5_text": delta_facts,
    "qwen3_next": delta_facts,
}
"""By family, the function that returns the metadata keys of its mixers and networks, with their values."""

_ALL_ATTEND = ("qwen3_5_moe_text", "qwen3_5_text", "qwen3_next")
"""Families whose files state heads of attention for all layers, and otherwise which layers have it."""
_HEADS_FILL_HIDDEN = ("lfm2", "lfm2_moe")
"""Families whose heads are the hidden values divided among them, which files do not repeat."""


def hybrid_facts(model: Model) -> dict[str, Any]:
    """Return keys without the architecture's prefix, in order. Raises BadInputError for what files of the architecture
    cannot state."""
    attention = first_body(model, Attention)
    assert attention is not None and model.final is not None, "families with both"
    own = HYBRIDS[model.family](model)
    attends = [attention.kv_heads if model.attention(layer) is not None else 0 for layer in range(model.layers)]
    result: dict[str, Any] = {
        "context_length": model.max_context,
        "embedding_length": model.hidden,
        "block_count": model.layers,
        "attention.head_count": attention.heads,
        "attention.head_count_kv": attention.kv_heads if model.family in _ALL_ATTEND else attends,
        "attention.layer_norm_rms_epsilon": model.final.eps,
        "vocab_size": model.vocab,
    }
    if model.family not in _HEADS_FILL_HIDDEN:
        result |= {"attention.key_length": attention.head_dim, "attention.value_length": attention.value_dim}
    if attention.rope is not None:
        result |= {"rope.freq_base": attention.rope.theta, "rope.dimension_count": attention.rope.rotary_dim}
    return {**result, **own}
