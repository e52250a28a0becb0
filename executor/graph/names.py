"""Which of lowering's operations a Hugging Face module computes."""

from collections.abc import Mapping
from functools import lru_cache

from helmsman.lowering.stored_names import stored_tensors
from helmsman.schemas.model import Model

_GPT2_BLOCK = {
    "ln_1": ("norm1",),
    "attn.c_attn": ("q", "k", "v"),
    "attn.c_proj": ("o",),
    "ln_2": ("norm2",),
    "mlp.c_fc": ("up",),
    "mlp.c_proj": ("down",),
}
_GPT2_ENDS = {
    "transformer.wte": ("embedding",),
    "transformer.wpe": ("embedding",),
    "transformer.ln_f": ("final_norm",),
    "lm_head": ("head",),
}
_GPT_NEOX_BLOCK = {
    "input_layernorm": ("norm1",),
    "attention.query_key_value": ("q", "k", "v"),
    "attention.dense": ("o",),
    "post_attention_layernorm": ("norm2",),
    "mlp.dense_h_to_4h": ("up",),
    "mlp.dense_4h_to_h": ("down",),
}
_GPT_NEOX_ENDS = {
    "gpt_neox.embed_in": ("embedding",),
    "gpt_neox.final_layer_norm": ("final_norm",),
    "lm_head": ("head",),
    "embed_out": ("head",),
}


@lru_cache(maxsize=8)
def operations_of(model: Model) -> Mapping[str, tuple[str, ...]]:
    """By module path, the operations it computes; several where their projections are one matrix."""
    if model.family == "gpt2":
        return {**_GPT2_ENDS, **_repeated("transformer.h", _GPT2_BLOCK, model.layers)}
    if model.family == "gpt_neox":
        return {**_GPT_NEOX_ENDS, **_repeated("gpt_neox.layers", _GPT_NEOX_BLOCK, model.layers)}
    by_module: dict[str, tuple[str, ...]] = {}
    for stored in stored_tensors(model):
        ops = tuple(dict.fromkeys(part.op for part in stored.parts))
        by_module[stored.name.rpartition(".")[0]] = ops
    return {**by_module, "lm_head": ("head",)}


def _repeated(blocks: str, block: Mapping[str, tuple[str, ...]], layers: int) -> dict[str, tuple[str, ...]]:
    return {f"{blocks}.{layer}.{path}": ops for layer in range(layers) for path, ops in block.items()}
