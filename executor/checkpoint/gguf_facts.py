"""The metadata of a GGUF file for a model with random weights: its dimensions and a byte-level tokenizer."""

from typing import Any

from helmsman.executor.checkpoint.gguf_expert_facts import expert_facts
from helmsman.executor.checkpoint.gguf_hybrid_facts import HYBRIDS, hybrid_facts
from helmsman.executor.checkpoint.gguf_latent_facts import kimi_facts, latent_facts
from helmsman.executor.checkpoint.gguf_window_facts import INTERVALS, window_facts
from helmsman.executor.checkpoint.tokenizer import byte_ids, byte_symbols, end_tokens
from helmsman.hwdb.gguf_rope import llama3_factors, longrope_magnitude
from helmsman.lowering.common_attention import common_attention, latent_attention
from helmsman.schemas.blocks.positions import LinearScaling, Llama3Scaling, LongRope, Rope
from helmsman.schemas.dense_model import DenseModel
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import FORMAT_FACTS, FileFormat
from helmsman.schemas.model import Model

ARCHITECTURES: dict[str, str] = {
    "deepseek_v2": "deepseek2",
    "deepseek_v3": "deepseek2",
    "falcon_h1": "falcon-h1",
    "gemma3_text": "gemma3",
    "glm4_moe_lite": "deepseek2",
    "gpt_oss": "gpt-oss",
    "granitemoehybrid": "granitehybrid",
    "kimi_linear": "kimi-linear",
    "lfm2": "lfm2",
    "lfm2_moe": "lfm2moe",
    "llama": "llama",
    "mistral": "llama",
    "mixtral": "llama",
    "nemotron_h": "nemotron_h",
    "olmoe": "olmoe",
    "phi3": "phi3",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "qwen3_5_moe_text": "qwen35moe",
    "qwen3_5_text": "qwen35",
    "qwen3_moe": "qwen3moe",
    "qwen3_next": "qwen3next",
}
_UNTURNED = ("kimi_linear",)
"""Families of latent attention in some layers, whose heads do not turn."""
_FILE_TYPE_OF_MIX = 15
"""llama.cpp's number of files that mix q4_k and q6_k."""
_NORMAL = 1
_CONTROL = 3
_UNUSED = 5
"""Types of tokens, by the numbers that GGUF gives them."""


def architecture(model: Model) -> str:
    """Return GGUF's name of the family. Raises UsageError for a family that it does not have."""
    if model.family not in ARCHITECTURES:
        remedy = "write a Hugging Face directory: leave out `gguf`"
        raise UsageError("GGUF has no architecture for this family", field="gguf", value=model.family, remedy=remedy)
    name = ARCHITECTURES[model.family]
    return f"{name}_moe" if name == "nemotron_h" and model.routed else name


def facts(model: Model, fmt: FileFormat) -> dict[str, Any]:
    """Keys and values in order: int (u32), float (f32), bool, str, and lists of str, bool or int (i32)."""
    name = architecture(model)
    general = {"general.architecture": name, "general.name": model.name, "general.file_type": _file_type(fmt)}
    own = {f"{name}.{key}": value for key, value in _own_facts(model).items()}
    return {**general, **own, **_tokenizer(model)}


def _own_facts(model: Model) -> dict[str, Any]:
    """Return the keys of the architecture, without its name."""
    latent = latent_attention(model)
    if latent is not None:
        return latent_facts(model, latent)
    if model.family in _UNTURNED:
        return kimi_facts(model)
    if model.family in INTERVALS:
        return window_facts(model)
    if model.family in HYBRIDS:
        return hybrid_facts(model)
    return expert_facts(model) if model.routed else {**_dimensions(model.dense), **_rope(model.dense)}


def rope_tensors(model: Model) -> dict[str, tuple[float, ...]]:
    """The factors per frequency that files keep as f32 tensors, by name."""
    if model.family in (*INTERVALS, *HYBRIDS, *_UNTURNED):
        return {}
    rope = (latent_attention(model) or common_attention(model)).rope
    assert rope is not None, "families with rotary positions"
    if isinstance(rope.scaling, Llama3Scaling):
        return {"rope_freqs.weight": llama3_factors(rope.scaling, rope.theta, rope.rotary_dim)}
    if isinstance(rope.scaling, LongRope):
        long, short = rope.scaling.long_factor, rope.scaling.short_factor
        return {"rope_factors_long.weight": long, "rope_factors_short.weight": short}
    return {}


def _file_type(fmt: FileFormat) -> int | None:
    """Return llama.cpp's number of the format that most matrices have."""
    return _FILE_TYPE_OF_MIX if fmt == "q4_k_m" else FORMAT_FACTS[fmt].gguf_file


def _dimensions(shape: DenseModel) -> dict[str, Any]:
    window = {} if shape.sliding_window is None else {"attention.sliding_window": shape.sliding_window}
    return {
        "context_length": shape.max_context,
        "embedding_length": shape.hidden,
        "block_count": shape.layers,
        "feed_forward_length": shape.ffn,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "attention.key_length": shape.head_dim,
        "attention.value_length": shape.head_dim,
        "attention.layer_norm_rms_epsilon": shape.norm_eps,
        "vocab_size": shape.vocab,
        **({"attention.sliding_window": 0} if shape.family == "phi3" else {}),
        **window,
    }


def _rope(shape: DenseModel) -> dict[str, Any]:
    assert isinstance(shape.position, Rope)
    rope: dict[str, Any] = {
        "rope.freq_base": shape.position.theta,
        "rope.dimension_count": shape.position.rotary_dim,
    }
    scaling = shape.position.scaling
    if isinstance(scaling, LinearScaling):
        rope |= {"rope.scaling.type": "linear", "rope.scaling.factor": scaling.factor}
    if isinstance(scaling, LongRope):
        rope |= {"rope.scaling.original_context_length": scaling.original_context}
        rope |= {"rope.scaling.attn_factor": longrope_magnitude(scaling, shape.max_context)}
    return rope


def _tokenizer(model: Model) -> dict[str, Any]:
    """One token per byte; ids without a meaning are named, so that there are as many as rows of the embedding."""
    tokens, kinds = [f"[PAD{index}]" for index in range(model.vocab)], [_UNUSED] * model.vocab
    for index, symbol in zip(byte_ids(model), byte_symbols(), strict=True):
        tokens[index], kinds[index] = symbol, _NORMAL
    ends = end_tokens(model)
    for text, index in ends.items():
        tokens[index], kinds[index] = text, _CONTROL
    end = {"tokenizer.ggml.eos_token_id": next(iter(ends.values()))} if ends else {}
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.merges": [],
        **end,
        "tokenizer.ggml.add_bos_token": False,
    }
