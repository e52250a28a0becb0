"""Recognising, from a `config.json`, models whose structure is not covered, and refusing them by name."""

from typing import Any, cast, get_args

from helmsman.hwdb.config_fields import Fields
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.model import Family

_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_OWN_BIASES = {
    "llama": ("attention_bias", "mlp_bias"),
    "qwen3": ("attention_bias",),
    "gpt_neox": ("attention_bias",),
}
_KNOWN_TYPES = {
    "gemma": "Gemma's scaled embeddings and shifted norms",
    "gemma2": "Gemma 2's soft-capped logits and four norms per block",
    "gemma3": "Gemma 3's four norms per block and interleaved sliding windows",
    "gemma3_text": "Gemma 3's four norms per block and interleaved sliding windows",
    "gpt_oss": "gpt-oss's attention sinks",
    "phi": "Phi-1/2's parallel attention and FFN",
}


def covered_family(fields: Fields) -> Family:
    """Return the model's family; raises BadInputError that names everything in it which is not covered."""
    family = fields.text("model_type")
    if family not in get_args(Family):
        _refuse(fields, "model_type", [*_structures(fields), _type_reason(family)])
    _refuse(fields, "", _structures(fields))
    _refuse(fields, "", _opt_variants(fields) if family == "opt" else _biases(fields, family))
    return cast(Family, family)


def _refuse(fields: Fields, key: str, reasons: list[tuple[str, str]]) -> None:
    if reasons:
        raise BadInputError(
            f"not covered: {', '.join(reason for _, reason in reasons)}",
            file=fields.file,
            field=fields.within + (key or reasons[0][0]),
            remedy=f"choose a dense model of the families {', '.join(get_args(Family))}",
        )


def _type_reason(family: str) -> tuple[str, str]:
    known = _KNOWN_TYPES.get(family)
    return "model_type", f"model type {family!r}" + (f" ({known})" if known else "")


def _structures(fields: Fields) -> list[tuple[str, str]]:
    """(field, reason) for what changes the operations of any family."""
    structures = [(key, f"mixture of experts ({_shown(fields, key)})") for key in _EXPERTS if _set(fields, key)]
    if _set(fields, "kv_lora_rank"):
        structures.append(("kv_lora_rank", f"multi-head latent attention ({_shown(fields, 'kv_lora_rank')})"))
    if fields.has("quantization_config"):
        structures.append(("quantization_config", f"quantised weights ({_method(fields)})"))
    architectures = fields.texts("architectures")
    if architectures and not any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in architectures):
        structures.append(("architectures", f"architecture {architectures[0]} (no language-model head)"))
    if fields.flag("add_cross_attention", False):
        structures.append(("add_cross_attention", "cross attention"))
    if fields.flag("lm_head_bias", False):
        structures.append(("lm_head_bias", "a bias in the language-model head"))
    return structures


def _biases(fields: Fields, family: str) -> list[tuple[str, str]]:
    """(field, reason) for biases that the family's own implementation does not have."""
    supported = _OWN_BIASES.get(family, ())
    keys = [key for key in ("attention_bias", "mlp_bias") if key not in supported]
    # Qwen2 has its biases on q, k and v whatever attention_bias says; its implementation never reads it.
    keys = [key for key in keys if not (family == "qwen2" and key == "attention_bias")]
    return [(key, f"{key} in the family {family}") for key in keys if fields.flag(key, False)]


def _opt_variants(fields: Fields) -> list[tuple[str, str]]:
    result = []
    if not fields.flag("do_layer_norm_before", True):
        result.append(("do_layer_norm_before", "OPT-350M's post-norm (do_layer_norm_before=false)"))
    hidden = fields.integer("hidden_size")
    if fields.integer("word_embed_proj_dim", hidden) != hidden:
        projection = _shown(fields, "word_embed_proj_dim")
        result.append(("word_embed_proj_dim", f"OPT-350M's embedding projections ({projection})"))
    if fields.flag("_remove_final_layer_norm", False):
        result.append(("_remove_final_layer_norm", "OPT without a final norm"))
    if not fields.flag("layer_norm_elementwise_affine", True):
        result.append(("layer_norm_elementwise_affine", "norms without weights"))
    return result


def _set(fields: Fields, key: str) -> bool:
    return fields.content.get(key) not in (None, 0, False)


def _shown(fields: Fields, key: str) -> str:
    return f"{key}={fields.content[key]}"[:80]


def _method(fields: Fields) -> str:
    config: Any = fields.content["quantization_config"]
    method = config.get("quant_method", "unknown method") if isinstance(config, dict) else config
    return str(method)[:80]
