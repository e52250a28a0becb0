"""The metadata of a GGUF file that models of latent attention have, beside the tokenizer's; Kimi-Linear, of which some
layers have it, among them."""

from math import log, sqrt
from typing import Any

from helmsman.executor.checkpoint.hybrid_config import first_body
from helmsman.lowering.common_attention import latent_of
from helmsman.schemas.blocks.attention import LatentAttention
from helmsman.schemas.blocks.feed_forward import Experts, FeedForward, Router
from helmsman.schemas.blocks.positions import YarnScaling
from helmsman.schemas.blocks.recurrent import DeltaRule
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.model import Model

_GATING = {"softmax": 1, "sigmoid": 2}
"""GGUF's numbers of the functions that turn a router's logits into scores."""


def latent_facts(model: Model, attention: LatentAttention) -> dict[str, Any]:
    """Return keys without the architecture's prefix, in order: attention as one key head over latent vectors."""
    bodies = [[body.op for body in block.bodies] for block in model.blocks]
    dense = [op for ops in bodies for op in ops if isinstance(op, FeedForward)]
    experts = next((op for ops in bodies for op in ops if isinstance(op, Experts)), None)
    assert model.final is not None, "families with a final norm"
    result: dict[str, Any] = {
        "context_length": model.max_context,
        "embedding_length": model.hidden,
        "block_count": model.layers,
        "attention.head_count": attention.heads,
        "attention.head_count_kv": 1,
        "attention.key_length": attention.cached_width,
        "attention.value_length": attention.latent,
        "attention.key_length_mla": attention.compared,
        "attention.value_length_mla": attention.value_dim,
        "attention.kv_lora_rank": attention.latent,
        "attention.layer_norm_rms_epsilon": model.final.eps,
        "vocab_size": model.vocab,
        "leading_dense_block_count": len(dense),
        **_rotation(attention),
    }
    if attention.query_rank is not None:
        result["attention.q_lora_rank"] = attention.query_rank
    widths = [op.width for op in dense] or [experts.width if experts is not None else 1]
    return {**result, "feed_forward_length": widths[0], **({} if experts is None else _experts(experts))}


def kimi_facts(model: Model) -> dict[str, Any]:
    """Return the keys of Kimi-Linear, whose layers without key heads have delta rules.

    Raises BadInputError for delta rules of other heads than attention's, which such files cannot state."""
    layers = [latent_of(model, layer) for layer in range(model.layers)]
    latent, delta = next(op for op in layers if op is not None), first_body(model, DeltaRule)
    assert delta is not None, "a family with delta rules"
    if (delta.key_heads, delta.value_heads, delta.value_dim) != (latent.heads, latent.heads, delta.key_dim):
        message = "not in GGUF files of its architecture: delta rules of other heads than attention's"
        remedy = "choose another model, or write a Hugging Face directory: leave out `gguf`"
        raise BadInputError(message, field="linear_attn_config.num_heads", value=delta.value_heads, remedy=remedy)
    return {
        **latent_facts(model, latent),
        "attention.head_count_kv": [int(op is not None) for op in layers],
        "ssm.conv_kernel": delta.taps,
        "kda.head_dim": delta.key_dim,
    }


def _experts(experts: Experts) -> dict[str, Any]:
    shared = 0 if experts.shared is None else experts.shared.width // experts.width
    return {
        "expert_count": experts.experts,
        "expert_used_count": experts.chosen,
        "expert_shared_count": shared,
        "expert_feed_forward_length": experts.width,
        **_routing(experts.router),
    }


def _routing(router: Router) -> dict[str, Any]:
    result: dict[str, Any] = {
        "expert_gating_func": _GATING[router.score],
        "expert_weights_norm": router.normalised,
        "expert_weights_scale": router.scaling,
    }
    if router.groups is not None:
        result |= {"expert_group_count": router.groups.count, "expert_group_used_count": router.groups.kept}
    return result


def _rotation(attention: LatentAttention) -> dict[str, Any]:
    rope = attention.rope
    if rope is None:
        return {"rope.dimension_count": attention.rope_dim}
    result: dict[str, Any] = {"rope.freq_base": rope.theta, "rope.dimension_count": rope.rotary_dim}
    scaling = rope.scaling
    if isinstance(scaling, YarnScaling):
        growth = sqrt(attention.scale * sqrt(attention.compared))
        result |= {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": scaling.factor,
            "rope.scaling.original_context_length": scaling.original_context,
            "rope.scaling.yarn_beta_fast": scaling.beta_fast,
            "rope.scaling.yarn_beta_slow": scaling.beta_slow,
            "rope.scaling.yarn_log_multiplier": (growth - 1) / log(scaling.factor),
            "rope.scaling.yarn_attn_factor": scaling.magnitude,
        }
    return result
