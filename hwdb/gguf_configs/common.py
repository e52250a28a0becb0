"""Keys of a `config.json` that all architectures' metadata gives alike: dimensions, heads, experts, rotations."""

from typing import Any

from helmsman.hwdb.gguf_configs.facts import MAX_CONTEXT, MAX_HEADS, GgufFacts
from helmsman.hwdb.gguf_rope import FACTORS, LONG, SHORT, llama3_parameters, small_tensor, stepped_parameters

ConfigKeys = dict[str, Any]
"""The content of a `config.json`."""

SOFTMAX, SIGMOID = 1, 2
"""Functions that turn a router's logits into scores, by GGUF's numbers."""

RMS_EPS = "attention.layer_norm_rms_epsilon"
_THETA = 10000.0
_MULTIPLES_OF_LOGARITHM = 10.0
"""`yarn_log_multiplier` is 0.1 mscale_all_dim."""


def base(facts: GgufFacts, model_type: str, eps: str = RMS_EPS) -> ConfigKeys:
    """Return the keys that every model has."""
    fields = facts.fields
    return {
        "model_type": model_type,
        "hidden_size": fields.integer("embedding_length"),
        "num_hidden_layers": facts.layers,
        "vocab_size": vocabulary(facts, "token_embd.weight"),
        "max_position_embeddings": fields.integer("context_length", high=MAX_CONTEXT),
        "rms_norm_eps": fields.real(eps, high=1.0),
        "tie_word_embeddings": "output.weight" not in facts.tensors,
    }


def grouped(facts: GgufFacts, model_type: str, eps: str = RMS_EPS) -> ConfigKeys:
    """Return the keys of a model with grouped-query attention and rotary positions."""
    return {**base(facts, model_type, eps), **heads(facts), **rotation(facts)}


def heads(facts: GgufFacts) -> ConfigKeys:
    """Return the heads of grouped-query attention, and whether its projections have biases."""
    fields = facts.fields
    count = facts.only("attention.head_count", high=MAX_HEADS)
    result = {
        "num_attention_heads": count,
        "num_key_value_heads": facts.only("attention.head_count_kv", count, high=MAX_HEADS),
        "attention_bias": facts.has_tensor("attn_q.bias"),
    }
    if fields.has("attention.key_length"):
        result["head_dim"] = fields.integer("attention.key_length", high=MAX_HEADS)
        same_as_keys(facts, "attention.value_length", result["head_dim"])
    return result


def same_as_keys(facts: GgufFacts, key: str, length: int) -> None:
    """Raise BadInputError for values of another length than keys."""
    if facts.fields.integer(key, length, high=MAX_HEADS) != length:
        raise facts.fields.wrong(key, "not covered: values of another length than keys", "choose another model")


def head_dim(facts: GgufFacts) -> int:
    """Return values of a head: as stated, or the hidden ones divided among the heads."""
    count = facts.only("attention.head_count", high=MAX_HEADS)
    return facts.fields.integer(
        "attention.key_length", max(facts.fields.integer("embedding_length") // count, 1), high=MAX_HEADS
    )


def vocabulary(facts: GgufFacts, name: str) -> int:
    """Return rows of a table of tokens, as files may leave the number out of their metadata. Raises BadInputError."""
    place = facts.tensors.get(name)
    if place is None:
        raise facts.missing(name)
    return place.shape[0]


def experts(facts: GgufFacts, count_key: str = "num_experts", chosen_key: str = "num_experts_per_tok") -> ConfigKeys:
    """Return how many experts there are, and how many a token takes."""
    fields = facts.fields
    return {count_key: fields.integer("expert_count"), chosen_key: fields.integer("expert_used_count")}


def expert_width(facts: GgufFacts) -> int:
    """Return the width of an expert; older files state it as that of networks."""
    own = facts.fields.has("expert_feed_forward_length")
    return facts.only("expert_feed_forward_length" if own else "feed_forward_length")


def gating(facts: GgufFacts, *covered: int) -> int:
    """Return the number of the router's function, one of those covered; the first where the file does not say it.

    Raises BadInputError."""
    number = facts.fields.integer("expert_gating_func", covered[0], low=0)
    number = number or covered[0]
    if number not in covered:
        remedy = f"covered: {', '.join(map(str, covered))}"
        raise facts.fields.wrong("expert_gating_func", "not covered: this function of the router", remedy)
    return number


def group_keys(facts: GgufFacts) -> ConfigKeys:
    """Return the groups of experts; one where the file has none."""
    fields = facts.fields
    count = fields.integer("expert_group_count", 1)
    return {"n_group": count, "topk_group": fields.integer("expert_group_used_count", count)}


def scaled_weights(facts: GgufFacts, normalised: bool) -> ConfigKeys:
    """Return what becomes of the chosen experts' scores; `normalised`: what files mean that do not say it."""
    fields = facts.fields
    return {
        "norm_topk_prob": fields.flag("expert_weights_norm", normalised),
        "routed_scaling_factor": fields.real("expert_weights_scale", 1.0),
    }


def share_of_head(facts: GgufFacts) -> ConfigKeys:
    """Return the share of a head's dimensions that turn."""
    dim = head_dim(facts)
    return {"partial_rotary_factor": facts.fields.integer("rope.dimension_count", dim, high=dim) / dim}


def rotation(facts: GgufFacts) -> ConfigKeys:
    """Return base and scaling of the rotary positions. Raises BadInputError for a scaling that is not covered."""
    result: ConfigKeys = {"rope_theta": facts.fields.real("rope.freq_base", _THETA)}
    scaling = _scaling(facts, result["rope_theta"])
    return {**result, "rope_scaling": scaling} if scaling is not None else result


def _scaling(facts: GgufFacts, theta: float) -> ConfigKeys | None:
    fields = facts.fields
    if FACTORS in facts.tensors:
        return _llama3(facts, theta)
    if LONG in facts.tensors or SHORT in facts.tensors:
        return _longrope(facts)
    match fields.text("rope.scaling.type", "none"):
        case "none":
            return None
        case "linear":
            return {"rope_type": "linear", "factor": fields.real("rope.scaling.factor")}
        case "yarn":
            return _yarn(facts)
    raise fields.wrong("rope.scaling.type", "not covered", "covered: none, linear, yarn, and factors kept as tensors")


def _yarn(facts: GgufFacts) -> ConfigKeys:
    fields = facts.fields
    result: ConfigKeys = {
        "rope_type": "yarn",
        "factor": fields.real("rope.scaling.factor"),
        "original_max_position_embeddings": fields.integer("rope.scaling.original_context_length", high=MAX_CONTEXT),
    }
    for key, name in (("beta_fast", "yarn_beta_fast"), ("beta_slow", "yarn_beta_slow")):
        if fields.has(f"rope.scaling.{name}"):
            result[key] = fields.real(f"rope.scaling.{name}")
    if fields.has("rope.scaling.yarn_attn_factor"):
        result["attention_factor"] = fields.real("rope.scaling.yarn_attn_factor")
    if fields.has("rope.scaling.yarn_log_multiplier"):
        weight = round(_MULTIPLES_OF_LOGARITHM * fields.real("rope.scaling.yarn_log_multiplier"), 7)
        result |= {"mscale": weight, "mscale_all_dim": weight}
    return result


def _longrope(facts: GgufFacts) -> ConfigKeys:
    dim = facts.fields.integer("rope.dimension_count", head_dim(facts), high=MAX_HEADS)
    return {
        "rope_type": "longrope",
        "long_factor": list(small_tensor(facts.header, facts.content, LONG, dim // 2)),
        "short_factor": list(small_tensor(facts.header, facts.content, SHORT, dim // 2)),
        "original_max_position_embeddings": facts.fields.integer(
            "rope.scaling.original_context_length", high=MAX_CONTEXT
        ),
    }


def _llama3(facts: GgufFacts, theta: float) -> ConfigKeys | None:
    dim = facts.fields.integer("rope.dimension_count", head_dim(facts), high=MAX_HEADS)
    factors = small_tensor(facts.header, facts.content, FACTORS, dim // 2)
    stepped = not any(1.0 < value < max(factors) for value in factors)
    scaling = (stepped_parameters if stepped else llama3_parameters)(facts.header, factors, theta, dim)
    if scaling is None:
        return None
    return {
        "rope_type": "llama3",
        "factor": scaling.factor,
        "low_freq_factor": scaling.low_freq_factor,
        "high_freq_factor": scaling.high_freq_factor,
        "original_max_position_embeddings": scaling.original_context,
    }
