"""Gemma 2, 3 and 4: windows in most layers, heads that differ by kind of layer, caches that layers share."""

from helmsman.hwdb.gguf_configs.common import (
    ConfigKeys,
    base,
    expert_width,
    experts,
    grouped,
    head_dim,
    same_as_keys,
    vocabulary,
)
from helmsman.hwdb.gguf_configs.facts import MAX_CONTEXT, MAX_HEADS, MAX_LAYERS, GgufFacts
from helmsman.hwdb.gguf_rope import FACTORS, small_tensor

_FULL, _WINDOW = "full_attention", "sliding_attention"
_LOCAL_THETA = 10000.0
_TURNS_NOT = 1e30
"""What converters write as the factor of a pair that does not turn."""

_SCALED_BY_HIDDEN = {"gemma2": 46, "gemma3": 62}
"""Layers of the models (27B) whose scores are scaled by hidden / heads and not by the length of a head, which files do
not say."""


def gemma2(facts: GgufFacts) -> ConfigKeys:
    """Return a Gemma 2."""
    fields = facts.fields
    return {
        **_gemma(facts, "gemma2"),
        "attn_logit_softcapping": fields.real("attn_logit_softcapping", 50.0),
        "final_logit_softcapping": fields.real("final_logit_softcapping", 30.0),
        **_pattern(facts, 2),
    }


def gemma3(facts: GgufFacts) -> ConfigKeys:
    """Return the text model of a Gemma 3."""
    fields = facts.fields
    return {
        **_gemma(facts, "gemma3_text"),
        "rope_local_base_freq": fields.real("rope.freq_base_swa", _LOCAL_THETA),
        "attn_logit_softcapping": fields.optional_real("attn_logit_softcapping"),
        "final_logit_softcapping": fields.optional_real("final_logit_softcapping"),
        **_pattern(facts, 6),
    }


def _gemma(facts: GgufFacts, model_type: str) -> ConfigKeys:
    fields = facts.fields
    result = {
        **grouped(facts, model_type),
        "intermediate_size": facts.only("feed_forward_length"),
        "sliding_window": fields.integer("attention.sliding_window", high=MAX_CONTEXT),
    }
    if fields.has("attention.scale"):
        return {**result, "query_pre_attn_scalar": fields.real("attention.scale") ** -2}
    by_hidden = facts.layers == _SCALED_BY_HIDDEN[model_type.removesuffix("_text")]
    scalar = result["hidden_size"] / result["num_attention_heads"] if by_hidden else head_dim(facts)
    return {**result, "query_pre_attn_scalar": scalar}


def _pattern(facts: GgufFacts, interval: int) -> ConfigKeys:
    """Return the kind of every layer: an array, or every so many layers full attention."""
    fields = facts.fields
    if isinstance(fields.content.get("attention.sliding_window_pattern"), list):
        return {"layer_types": _kinds(facts)}
    every = fields.integer("attention.sliding_window_pattern", interval, high=MAX_LAYERS)
    return {"layer_types": [_WINDOW if (layer + 1) % every else _FULL for layer in range(facts.layers)]}


def _kinds(facts: GgufFacts) -> list[str]:
    return [_WINDOW if slides else _FULL for slides in facts.flags("attention.sliding_window_pattern")]


def gemma4(facts: GgufFacts) -> ConfigKeys:
    """Return the text model of a Gemma 4."""
    fields = facts.fields
    kinds = _kinds(facts)
    shared = fields.integer("attention.shared_kv_layers", 0, low=0, high=facts.layers - 1)
    width = fields.integer("embedding_length_per_layer_input", 0, low=0)
    result = {
        **base(facts, "gemma4_text"),
        **_heads(facts, kinds, shared),
        **_networks(facts, shared),
        "layer_types": kinds,
        "num_kv_shared_layers": shared,
        "sliding_window": fields.integer("attention.sliding_window", high=MAX_CONTEXT),
        "final_logit_softcapping": fields.optional_real("final_logit_softcapping"),
        "hidden_size_per_layer_input": width,
        "rope_parameters": _rotations(facts),
    }
    return (
        {**result, "vocab_size_per_layer_input": vocabulary(facts, "per_layer_token_embd.weight")} if width else result
    )


def _heads(facts: GgufFacts, kinds: list[str], shared: int) -> ConfigKeys:
    """Return heads by kind of layer; keys are values where a full layer with a cache of its own has no values."""
    fields = facts.fields
    counts = facts.per_layer("attention.head_count_kv", high=MAX_HEADS)
    full, slid = ({count for count, kind in zip(counts, kinds, strict=True) if kind == one} for one in (_FULL, _WINDOW))
    if len(full) != 1 or len(slid) != 1:
        raise fields.wrong(
            "attention.head_count_kv", "not covered: layers of one kind that differ", "choose another model"
        )
    dim, window_dim = fields.integer("attention.key_length", high=MAX_HEADS), _window_dim(facts)
    same_as_keys(facts, "attention.value_length", dim)
    same_as_keys(facts, "attention.value_length_swa", window_dim)
    own = [layer for layer in range(facts.layers - shared) if kinds[layer] == _FULL]
    return {
        "num_attention_heads": facts.only("attention.head_count", high=MAX_HEADS),
        "num_key_value_heads": slid.pop(),
        "num_global_key_value_heads": full.pop(),
        "head_dim": window_dim,
        "global_head_dim": dim,
        "attention_k_eq_v": bool(own) and not any(facts.has_tensor("attn_v.weight", layer) for layer in own),
        "attention_bias": facts.has_tensor("attn_q.bias"),
    }


def _window_dim(facts: GgufFacts) -> int:
    dim = facts.fields.integer("attention.key_length_swa", high=MAX_HEADS)
    turned = facts.fields.integer("rope.dimension_count_swa", dim, high=MAX_HEADS)
    if turned != dim:
        raise facts.fields.wrong("rope.dimension_count_swa", f"not covered: must be {dim}", "choose another model")
    return dim


def _networks(facts: GgufFacts, shared: int) -> ConfigKeys:
    """Return widths: those of layers that share caches may be twice the others'. Experts stand beside the networks."""
    fields = facts.fields
    widths = facts.per_layer("feed_forward_length")
    first, double = widths[0], widths[-1] == 2 * widths[0]
    own = facts.layers - shared
    if widths != (first,) * own + ((2 if double else 1) * first,) * shared:
        raise fields.wrong("feed_forward_length", "not covered: these widths of layers", "choose another model")
    result: ConfigKeys = {"intermediate_size": first, "use_double_wide_mlp": double}
    if not fields.integer("expert_count", 0, low=0):
        fields.read.update(("expert_used_count", "expert_feed_forward_length"))
        return result
    counts = experts(facts, "num_experts", "top_k_experts")
    return {**result, **counts, "enable_moe_block": True, "moe_intermediate_size": expert_width(facts)}


def _rotations(facts: GgufFacts) -> ConfigKeys:
    """Return both rotations; the pairs of full attention that do not turn have factors of 1e30."""
    fields = facts.fields
    dim = fields.integer("attention.key_length", high=MAX_HEADS)
    fields.integer("rope.dimension_count", dim, low=dim, high=dim)
    share = 1.0
    if FACTORS in facts.tensors:
        factors = small_tensor(facts.header, facts.content, FACTORS, dim // 2, 2 * _TURNS_NOT)
        turned = sum(value == 1.0 for value in factors)
        if any(value < _TURNS_NOT / 2 for value in factors[turned:]):
            raise fields.wrong("rope.dimension_count", f"not covered: the factors in {FACTORS}", "choose another model")
        share = turned / (dim // 2)
    full = {"rope_type": "proportional", "partial_rotary_factor": share, "rope_theta": fields.real("rope.freq_base")}
    theta = fields.real("rope.freq_base_swa", _LOCAL_THETA)
    return {_FULL: full, _WINDOW: {"rope_type": "default", "rope_theta": theta}}
