"""The metadata of a GGUF file that models with windows have, beside the tokenizer's: Gemma 3 and gpt-oss."""

from math import isclose, log
from typing import Any

from helmsman.schemas.blocks.attention import Attention
from helmsman.schemas.blocks.feed_forward import Experts, FeedForward
from helmsman.schemas.blocks.positions import LinearScaling, Rope, YarnScaling
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.model import Model

INTERVALS = {"gemma3_text": 6, "gpt_oss": 2}
"""By family, every how many layers files mean one without a window, where they do not say it."""
_SAME = 1e-6
"""Relative: magnitudes that are stated in decimals."""


def window_facts(model: Model) -> dict[str, Any]:
    """Return keys without the architecture's prefix, in order.

    Raises BadInputError for a pattern of windows, a scale of scores or a rotation that files of these architectures
    cannot state."""
    attentions = [_attention(model, layer) for layer in range(model.layers)]
    _check_pattern(model, attentions)
    window = attentions[0]
    full = next((attention for attention in attentions if attention.window is None), window)
    assert model.final is not None and full.rope is not None, "families with both"
    result: dict[str, Any] = {
        "context_length": model.max_context,
        "embedding_length": model.hidden,
        "block_count": model.layers,
        **_network(model),
        "attention.head_count": full.heads,
        "attention.head_count_kv": full.kv_heads,
        "attention.key_length": full.head_dim,
        "attention.value_length": full.value_dim,
        "attention.layer_norm_rms_epsilon": model.final.eps,
        "attention.sliding_window": window.window,
        "vocab_size": model.vocab,
        **_rotation(full.rope),
    }
    if model.family != "gpt_oss":
        assert window.rope is not None, "a family with rotations"
        result |= {"attention.scale": full.scale, "rope.freq_base_swa": window.rope.theta}
    caps = {"final_logit_softcapping": model.head.softcap, "attn_logit_softcapping": full.softcap}
    return result | {key: value for key, value in caps.items() if value is not None}


def _attention(model: Model, layer: int) -> Attention:
    attention = model.attention(layer)
    assert attention is not None, "families whose layers all attend"
    return attention


def _check_pattern(model: Model, attentions: list[Attention]) -> None:
    interval = INTERVALS[model.family]
    windows = [(layer + 1) % interval != 0 for layer in range(model.layers)]
    if [attention.window is not None for attention in attentions] != windows:
        message, remedy = "windows in other layers than files mean", f"choose one without in layers {interval}, ..."
        raise BadInputError(message, field="model.pattern", value=model.pattern[:40], remedy=remedy)


def _network(model: Model) -> dict[str, Any]:
    network = next(
        body.op for layout in model.layouts for body in layout.bodies if isinstance(body.op, FeedForward | Experts)
    )
    if not isinstance(network, Experts):
        return {"feed_forward_length": network.width}
    return {
        "feed_forward_length": network.width,
        "expert_count": network.experts,
        "expert_used_count": network.chosen,
        "expert_feed_forward_length": network.width,
    }


def _rotation(rope: Rope) -> dict[str, Any]:
    result: dict[str, Any] = {"rope.freq_base": rope.theta, "rope.dimension_count": rope.rotary_dim}
    match rope.scaling:
        case None:
            return result
        case LinearScaling() as scaling:
            return result | {"rope.scaling.type": "linear", "rope.scaling.factor": scaling.factor}
        case YarnScaling() as scaling if _usual(scaling):
            return result | {
                "rope.scaling.type": "yarn",
                "rope.scaling.factor": scaling.factor,
                "rope.scaling.original_context_length": scaling.original_context,
                "rope.scaling.yarn_beta_fast": scaling.beta_fast,
                "rope.scaling.yarn_beta_slow": scaling.beta_slow,
            }
        case other:
            message, remedy = "a rotation that files of this family do not have", "choose a model without"
            raise BadInputError(message, field="model.position", value=other.kind, remedy=remedy)


def _usual(scaling: YarnScaling) -> bool:
    """Whether ends of the blend and magnitude are what files mean that do not state them."""
    return not scaling.truncate and isclose(scaling.magnitude, 0.1 * log(scaling.factor) + 1, rel_tol=_SAME)
