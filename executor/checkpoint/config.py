"""`config.json` of a model, in the keys that Hugging Face's classes read."""

from typing import Any

from helmsman.schemas.formats import Format
from helmsman.schemas.model import LinearScaling, Llama3Scaling, Model, Rope

_CLASSES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "opt": "OPTForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
_DTYPES: dict[Format, str] = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
_ACTIVATIONS = {"silu": "silu", "relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh"}


def hf_config(model: Model, fmt: Format) -> dict[str, Any]:
    """The content of `config.json` for `model` with weights in `fmt`.

    Tokens that the family's class would default to are written as null: they may lie outside the vocabulary."""
    common = {
        "architectures": [_CLASSES[model.family]],
        "model_type": model.family,
        "vocab_size": model.vocab,
        "hidden_size": model.hidden,
        "num_hidden_layers": model.layers,
        "num_attention_heads": model.heads,
        "max_position_embeddings": model.max_context,
        "tie_word_embeddings": model.tied_embeddings,
        "torch_dtype": _DTYPES[fmt],
        "use_cache": True,
        **token_ids(model),
    }
    return {**common, **(_opt(model) if model.family == "opt" else _llama_like(model))}


def token_ids(model: Model) -> dict[str, Any]:
    """The special token ids; one end token is a number, several are a list."""
    ends = [index for index in model.eos if index < model.vocab]
    end = ends[0] if len(ends) == 1 else (ends or None)
    return {"bos_token_id": None, "eos_token_id": end, "pad_token_id": None}


def _opt(model: Model) -> dict[str, Any]:
    return {
        "activation_function": _ACTIVATIONS[model.activation],
        "ffn_dim": model.ffn,
        "word_embed_proj_dim": model.hidden,
        "do_layer_norm_before": True,
        "layer_norm_elementwise_affine": True,
        "enable_bias": model.qkv_bias,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "layerdrop": 0.0,
    }


def _llama_like(model: Model) -> dict[str, Any]:
    fields = {
        "hidden_act": _ACTIVATIONS[model.activation],
        "intermediate_size": model.ffn,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_dim,
        "rms_norm_eps": model.norm_eps,
        "attention_dropout": 0.0,
        "attention_bias": model.out_bias,
        **_window(model),
        **(_rope(model, model.position) if isinstance(model.position, Rope) else {}),
    }
    return {**fields, "mlp_bias": model.ffn_bias} if model.family == "llama" else fields


def _window(model: Model) -> dict[str, Any]:
    if model.family in ("qwen2", "qwen3"):
        used = model.sliding_window is not None
        return {"sliding_window": model.sliding_window, "use_sliding_window": used}
    return {} if model.family == "llama" else {"sliding_window": model.sliding_window}


def _rope(model: Model, rope: Rope) -> dict[str, Any]:
    fields: dict[str, Any] = {"rope_theta": rope.theta, "rope_scaling": None}
    if rope.rotary_dim != model.head_dim:
        fields["partial_rotary_factor"] = rope.rotary_dim / model.head_dim
    scaling = rope.scaling
    if scaling is None:
        return fields
    if isinstance(scaling, LinearScaling):
        return fields | {"rope_scaling": {"rope_type": "linear", "factor": scaling.factor}}
    original = {"original_max_position_embeddings": scaling.original_context}
    if isinstance(scaling, Llama3Scaling):
        values = scaling.model_dump(exclude={"kind", "original_context"})
        return fields | {"rope_scaling": {"rope_type": "llama3", **values, **original}}
    factors = {"short_factor": list(scaling.short_factor), "long_factor": list(scaling.long_factor)}
    return fields | original | {"rope_scaling": {"type": "longrope", **factors}}
