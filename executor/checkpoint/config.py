"""`config.json` of a model, in the keys that Hugging Face's classes read."""

from typing import Any

from helmsman.executor.checkpoint.expert_config import EXPERT_FAMILIES, expert_fields
from helmsman.executor.checkpoint.hybrid_config import HYBRID_FAMILIES, HYBRID_TEXT, hybrid_fields
from helmsman.executor.checkpoint.latent_config import latent_fields
from helmsman.executor.checkpoint.multiplied_config import MULTIPLIED_CLASSES, multiplied_fields
from helmsman.executor.checkpoint.window_config import TEXT_FAMILIES, WINDOW_FAMILIES, window_fields
from helmsman.lowering.common_attention import common_attention, latent_attention, latent_of
from helmsman.schemas.blocks.positions import LinearScaling, Llama3Scaling, LongRope, Rope
from helmsman.schemas.dense_model import DenseModel
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import Format
from helmsman.schemas.model import Model

_CLASSES = {
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "glm4_moe_lite": "Glm4MoeLiteForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "gemma4_text": "Gemma4ForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "kimi_linear": "KimiLinearForCausalLM",
    "lfm2": "Lfm2ForCausalLM",
    "lfm2_moe": "Lfm2MoeForCausalLM",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "nemotron_h": "NemotronHForCausalLM",
    "olmoe": "OlmoeForCausalLM",
    "opt": "OPTForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_5_moe_text": "Qwen3_5MoeForCausalLM",
    "qwen3_5_text": "Qwen3_5ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM",
    **MULTIPLIED_CLASSES,
}
_DTYPES: dict[Format, str] = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
_ACTIVATIONS = {"silu": "silu", "relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh"}


def text_alone(model: Model) -> Model:
    """Return a model of the family that has text alone, where there is one beside that with images."""
    alone = {**TEXT_FAMILIES, **HYBRID_TEXT}
    return model.model_copy(update={"family": alone.get(model.family, model.family)})


def hf_config(model: Model, fmt: Format) -> dict[str, Any]:
    """The content of `config.json` for `model` with weights in `fmt`.

    Tokens that the family's class would default to are written as null: they may lie outside the vocabulary. Raises
    UsageError for a family that has no class."""
    if model.family not in _CLASSES:
        remedy = f"choose a model of the families {', '.join(_CLASSES)}"
        raise UsageError("no class to write it for", field="model.family", value=model.family, remedy=remedy)
    common = {
        "architectures": [_CLASSES[model.family]],
        "model_type": model.family,
        "vocab_size": model.vocab,
        "hidden_size": model.hidden,
        "num_hidden_layers": model.layers,
        "num_attention_heads": _heads(model),
        "max_position_embeddings": model.max_context,
        "tie_word_embeddings": model.head.tied,
        "torch_dtype": _DTYPES[fmt],
        "use_cache": True,
        **token_ids(model),
    }
    latent = latent_attention(model)
    if latent is not None:
        return {**common, **latent_fields(model, latent)}
    if model.family in EXPERT_FAMILIES:
        return {**common, **expert_fields(model)}
    if model.family in WINDOW_FAMILIES:
        return {**common, **window_fields(model)}
    if model.family in HYBRID_FAMILIES:
        return {**common, **hybrid_fields(model)}
    if model.family in MULTIPLIED_CLASSES:
        return {**common, **multiplied_fields(model)}
    shape = model.dense
    return {**common, **(_opt(shape) if shape.family == "opt" else _llama_like(shape))}


def _heads(model: Model) -> int:
    """Return query heads of a layer, as many as every other that attends has."""
    latents = (latent_of(model, layer) for layer in range(model.layers))
    latent = next((op for op in latents if op is not None), None)
    if latent is not None:
        return latent.heads
    if model.family not in (*WINDOW_FAMILIES, *HYBRID_FAMILIES, *MULTIPLIED_CLASSES):
        return common_attention(model).heads
    return next(layout.attention.heads for layout in model.layouts if layout.attention is not None)


def token_ids(model: Model) -> dict[str, Any]:
    """The special token ids; one end token is a number, several are a list."""
    ends = [index for index in model.eos if index < model.vocab]
    end = ends[0] if len(ends) == 1 else (ends or None)
    return {"bos_token_id": None, "eos_token_id": end, "pad_token_id": None}


def _opt(shape: DenseModel) -> dict[str, Any]:
    return {
        "activation_function": _ACTIVATIONS[shape.activation],
        "ffn_dim": shape.ffn,
        "word_embed_proj_dim": shape.hidden,
        "do_layer_norm_before": True,
        "layer_norm_elementwise_affine": True,
        "enable_bias": shape.qkv_bias,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "layerdrop": 0.0,
    }


def _llama_like(shape: DenseModel) -> dict[str, Any]:
    fields = {
        "hidden_act": _ACTIVATIONS[shape.activation],
        "intermediate_size": shape.ffn,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "rms_norm_eps": shape.norm_eps,
        "attention_dropout": 0.0,
        "attention_bias": shape.out_bias,
        **_window(shape),
        **(_rope(shape, shape.position) if isinstance(shape.position, Rope) else {}),
    }
    return {**fields, "mlp_bias": shape.ffn_bias} if shape.family == "llama" else fields


def _window(shape: DenseModel) -> dict[str, Any]:
    if shape.family in ("qwen2", "qwen3"):
        used = shape.sliding_window is not None
        return {"sliding_window": shape.sliding_window, "use_sliding_window": used}
    return {} if shape.family == "llama" else {"sliding_window": shape.sliding_window}


def _rope(shape: DenseModel, rope: Rope) -> dict[str, Any]:
    fields: dict[str, Any] = {"rope_theta": rope.theta, "rope_scaling": None}
    if rope.rotary_dim != shape.head_dim:
        fields["partial_rotary_factor"] = rope.rotary_dim / shape.head_dim
    scaling = rope.scaling
    if scaling is None:
        return fields
    if isinstance(scaling, LinearScaling):
        return fields | {"rope_scaling": {"rope_type": "linear", "factor": scaling.factor}}
    if isinstance(scaling, Llama3Scaling):
        values = scaling.model_dump(exclude={"kind", "original_context"})
        original = {"original_max_position_embeddings": scaling.original_context}
        return fields | {"rope_scaling": {"rope_type": "llama3", **values, **original}}
    assert isinstance(scaling, LongRope), "check_native refuses others"
    factors = {"short_factor": list(scaling.short_factor), "long_factor": list(scaling.long_factor)}
    original = {"original_max_position_embeddings": scaling.original_context}
    return fields | original | {"rope_scaling": {"type": "longrope", **factors}}
