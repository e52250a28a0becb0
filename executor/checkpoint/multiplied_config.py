"""The fields of `config.json` that models with multipliers have: Granite 3 and 4, Falcon-H1."""

from typing import Any, TypeVar

from helmsman.schemas.blocks.attention import Attention
from helmsman.schemas.blocks.block import Body
from helmsman.schemas.blocks.feed_forward import Experts, FeedForward
from helmsman.schemas.blocks.recurrent import StateSpace
from helmsman.schemas.errors import UsageError
from helmsman.schemas.model import Model

MULTIPLIED_CLASSES = {
    "falcon_h1": "FalconH1ForCausalLM",
    "granite": "GraniteForCausalLM",
    "granitemoe": "GraniteMoeForCausalLM",
    "granitemoehybrid": "GraniteMoeHybridForCausalLM",
    "granitemoeshared": "GraniteMoeSharedForCausalLM",
}
"""Families whose checkpoints are written with these fields, and their classes."""

_KINDS = {"attention": "attention", "state-space": "mamba"}

OpT = TypeVar("OpT")


def multiplied_fields(model: Model) -> dict[str, Any]:
    """Return mixers by layer, heads, norms, networks and multipliers. Raises UsageError for scaled positions, and for a
    model whose multipliers nobody states."""
    if model.unknown:
        facts = ", ".join(model.unknown)
        remedy = "describe the model by its config.json, which has them"
        raise UsageError("facts are missing", field="model.unknown", value=facts, remedy=remedy)
    attention = _operation(model, Attention)
    assert attention is not None and model.final is not None, "families with attention and a final norm"
    fields: dict[str, Any] = {
        "hidden_act": "silu",
        "rms_norm_eps": model.final.eps,
        "num_key_value_heads": attention.kv_heads,
        "attention_bias": attention.qkv_bias,
        "attention_dropout": 0.0,
        "embedding_multiplier": model.embedding.scale,
        **_rotation(attention),
        **_state_space(model),
    }
    return {**fields, **(_falcon(model, attention) if model.family == "falcon_h1" else _granite(model, attention))}


def _body_of(model: Model, kind: type[OpT]) -> Body | None:
    """Return the first body of an operation of a kind; None where no block has one."""
    bodies = (body for block in model.blocks for body in block.bodies)
    return next((body for body in bodies if isinstance(body.op, kind)), None)


def _operation(model: Model, kind: type[OpT]) -> OpT | None:
    body = _body_of(model, kind)
    return body.op if body is not None and isinstance(body.op, kind) else None


def _rotation(attention: Attention) -> dict[str, Any]:
    if attention.rope is None:
        return {}
    if attention.rope.scaling is not None:
        scaling = attention.rope.scaling.kind
        remedy = "choose a model whose positions are not scaled"
        raise UsageError("no config to write it in", field="model.rope.scaling", value=scaling, remedy=remedy)
    return {"rope_theta": attention.rope.theta, "rope_scaling": None}


def _state_space(model: Model) -> dict[str, Any]:
    space = _operation(model, StateSpace)
    if space is None:
        return {}
    return {
        "mamba_n_heads": space.heads,
        "mamba_d_head": space.head_dim,
        "mamba_d_state": space.state,
        "mamba_n_groups": space.groups,
        "mamba_d_conv": space.taps,
        "mamba_conv_bias": space.conv_bias,
        "mamba_proj_bias": space.bias,
        **({} if space.longest_step is None else {"time_step_limit": [0.0, space.longest_step]}),
    }


def _granite(model: Model, attention: Attention) -> dict[str, Any]:
    experts, network = _operation(model, Experts), _operation(model, FeedForward)
    shared = network if experts is None else experts.shared
    fields: dict[str, Any] = {
        "residual_multiplier": model.blocks[0].residuals[0].scale,
        "attention_multiplier": attention.scale,
        "logits_scaling": model.head.divide,
    }
    if experts is not None:
        fields |= {
            "intermediate_size": experts.width,
            "num_local_experts": experts.experts,
            "num_experts_per_tok": experts.chosen,
        }
    if model.family == "granite":
        assert network is not None, "a family with dense networks"
        return {**fields, "intermediate_size": network.width, "mlp_bias": network.bias}
    if shared is not None:
        fields["shared_intermediate_size"] = shared.width
    if model.family != "granitemoehybrid":
        return fields
    if experts is None:
        fields |= {"num_local_experts": 0, "num_experts_per_tok": 0}
    space = _operation(model, StateSpace)
    return {
        **fields,
        "layer_types": [_KINDS[block.bodies[0].op.kind] for block in model.blocks],
        "position_embedding_type": "nope" if attention.rope is None else "rope",
        **({} if space is None else {"mamba_expand": space.inner // model.hidden}),
    }


def _falcon(model: Model, attention: Attention) -> dict[str, Any]:
    attends, recurs, feeds = (_body_of(model, kind) for kind in (Attention, StateSpace, FeedForward))
    space, network = _operation(model, StateSpace), _operation(model, FeedForward)
    assert attends is not None and recurs is not None and feeds is not None, "a family with all three in every layer"
    assert space is not None and space.scales is not None and network is not None, "multipliers of states"
    return {
        "head_dim": attention.head_dim,
        "intermediate_size": network.width,
        "mlp_bias": network.bias,
        "mamba_d_ssm": space.inner,
        "mamba_rms_norm": space.norm is not None,
        "mamba_norm_before_gate": space.norm_first,
        "projectors_bias": space.bias,
        "lm_head_multiplier": model.head.scale,
        "key_multiplier": attention.key_scale,
        "attention_in_multiplier": attends.in_scale,
        "attention_out_multiplier": attends.out_scale,
        "ssm_in_multiplier": recurs.in_scale,
        "ssm_out_multiplier": recurs.out_scale,
        "ssm_multipliers": list(space.scales),
        "mlp_multipliers": [network.gate_scale, feeds.out_scale],
    }
