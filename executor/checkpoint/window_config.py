"""The fields of `config.json` that models with windows, sinks or norms after bodies have: gpt-oss and Gemma."""

from math import isclose, log
from typing import Any

from helmsman.lowering.layer_cache import owner
from helmsman.schemas.blocks.attention import Attention
from helmsman.schemas.blocks.feed_forward import Experts, FeedForward
from helmsman.schemas.blocks.positions import LinearScaling, ProportionalScaling, Rope, YarnScaling
from helmsman.schemas.errors import BadInputError, UsageError
from helmsman.schemas.model import Model

TEXT_FAMILIES = {"gemma3": "gemma3_text", "gemma4": "gemma4_text"}
"""By the family of a model of text beside others, that of the text model alone."""
WINDOW_FAMILIES = ("gemma2", "gemma3_text", "gemma4_text", "gpt_oss")
"""Families whose checkpoints are written with these fields."""
_SAME = 1e-6
"""Relative: configurations state magnitudes in decimals."""


def window_fields(model: Model) -> dict[str, Any]:
    """Return heads, windows, rotations, norms, caps and networks.

    Raises BadInputError for a rotation that these families do not have, UsageError for layers that their files cannot
    state."""
    window, full = _attentions(model)
    kinds = ["full_attention" if _of(model, layer).window is None else "sliding_attention" for layer in _layers(model)]
    assert model.final is not None, "families with a final norm"
    fields: dict[str, Any] = {
        "num_key_value_heads": window.kv_heads,
        "head_dim": window.head_dim,
        "rms_norm_eps": model.final.eps,
        "attention_dropout": 0.0,
        "attention_bias": window.qkv_bias,
        "sliding_window": window.window,
        "layer_types": kinds,
    }
    if model.family == "gpt_oss":
        return fields | _gpt_oss(model, full)
    return fields | _gemma(model, window, full)


def _layers(model: Model) -> range:
    return range(model.layers)


def _of(model: Model, layer: int) -> Attention:
    attention = model.attention(layer)
    assert attention is not None, "families whose layers all attend"
    return attention


def _attentions(model: Model) -> tuple[Attention, Attention]:
    """Return the attention of layers with a window and of those without; where there is one kind, that twice."""
    kinds = {_of(model, layer).window is None: _of(model, layer) for layer in _layers(model)}
    any_kind = next(iter(kinds.values()))
    return kinds.get(False, any_kind), kinds.get(True, any_kind)


def _gpt_oss(model: Model, full: Attention) -> dict[str, Any]:
    experts = _network(model, Experts)
    rope = full.rope
    assert rope is not None, "a family with rotations"
    return {
        "hidden_act": "silu",
        "intermediate_size": experts.width,
        "num_local_experts": experts.experts,
        "num_experts_per_tok": experts.chosen,
        "swiglu_limit": experts.clamp,
        "rope_theta": rope.theta,
        "rope_scaling": _rotation(rope),
    }


def _gemma(model: Model, window: Attention, full: Attention) -> dict[str, Any]:
    network = next(body.op for body in model.blocks[0].bodies if isinstance(body.op, FeedForward))
    fields: dict[str, Any] = {
        "hidden_activation": "gelu_pytorch_tanh",
        "intermediate_size": network.width,
        "final_logit_softcapping": model.head.softcap,
    }
    if model.family == "gemma4_text":
        return fields | _gemma4(model, window, full)
    fields |= {"query_pre_attn_scalar": round(full.scale**-2), "attn_logit_softcapping": full.softcap}
    if model.family == "gemma2":
        assert full.rope is not None, "a family with rotations"
        return fields | {"rope_theta": full.rope.theta}
    return fields | {"rope_parameters": _by_kind(window, full)}


def _gemma4(model: Model, window: Attention, full: Attention) -> dict[str, Any]:
    routed, table, shared = model.routed, model.per_layer_table, _shared_layers(model)
    experts = _network(model, Experts) if routed else None
    return {
        "global_head_dim": full.head_dim,
        "num_global_key_value_heads": full.kv_heads,
        "attention_k_eq_v": full.values == "keys",
        "rope_parameters": _by_kind(window, full),
        "hidden_size_per_layer_input": 0 if table is None else table.width,
        "vocab_size_per_layer_input": model.vocab if table is None else table.vocab,
        "num_kv_shared_layers": shared,
        "use_double_wide_mlp": bool(shared) and _width(model, model.layers - 1) != _width(model, 0),
        "enable_moe_block": routed,
        "num_experts": None if experts is None else experts.experts,
        "top_k_experts": None if experts is None else experts.chosen,
        "moe_intermediate_size": None if experts is None else experts.width,
    }


def _shared_layers(model: Model) -> int:
    """Return how many layers at the end read the caches of earlier ones.

    Raises UsageError for layers in an order that this family's files mean otherwise."""
    shares = [owner(model, layer) != layer for layer in _layers(model)]
    count, problem = sum(shares), None
    if _of(model, model.layers - 1).window is not None:
        problem = "whose last layer attends over a window, and files of its family mean full attention there"
    elif not all(shares[model.layers - count :]):
        problem = "whose layers with caches of their own follow some without"
    if problem is None:
        return count
    ends = [layer + 1 for layer in _layers(model) if _of(model, layer).window is None]
    remedy = f"keep the first {ends[-1]}" if ends else "keep more of them, up to one with full attention"
    message = f"{model.layers} layers of {model.name}, {problem}"
    raise UsageError(message, field="layers", value=model.layers, remedy=remedy)


def _width(model: Model, layer: int) -> int:
    return next(body.op.width for body in model.blocks[layer].bodies if isinstance(body.op, FeedForward))


def _network(model: Model, kind: type[Any]) -> Any:
    bodies = (body.op for layout in model.layouts for body in layout.bodies)
    return next(body for body in bodies if isinstance(body, kind))


def _by_kind(window: Attention, full: Attention) -> dict[str, Any]:
    ropes = {"sliding_attention": window.rope, "full_attention": full.rope}
    return {kind: {"rope_theta": rope.theta, **_rotation(rope)} for kind, rope in ropes.items() if rope is not None}


def _rotation(rope: Rope) -> dict[str, Any]:
    match rope.scaling:
        case None:
            return {"rope_type": "default"}
        case LinearScaling() as scaling:
            return {"rope_type": "linear", "factor": scaling.factor}
        case ProportionalScaling() as scaling:
            return {"rope_type": "proportional", "partial_rotary_factor": scaling.share}
        case YarnScaling() as scaling:
            stated = {"factor": scaling.factor, "beta_fast": scaling.beta_fast, "beta_slow": scaling.beta_slow}
            magnitude = {} if _usual(scaling) else {"attention_factor": scaling.magnitude}
            original = {"original_max_position_embeddings": scaling.original_context, "truncate": scaling.truncate}
            return {"rope_type": "yarn", **stated, **original, **magnitude}
        case other:
            message, remedy = "a rotation that is not written for this family", "choose a model without"
            raise BadInputError(message, field="model.position", value=other.kind, remedy=remedy)


def _usual(scaling: YarnScaling) -> bool:
    """Whether the magnitude is what YaRN makes of the factor."""
    return isclose(scaling.magnitude, 0.1 * log(scaling.factor) + 1 if scaling.factor > 1 else 1.0, rel_tol=_SAME)
