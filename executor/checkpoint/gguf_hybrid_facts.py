"""The metadata of a GGUF file that models with states have, beside the tokenizer's: Qwen3-Next and 3.5."""

from collections.abc import Iterator
from typing import Any, TypeVar

from helmsman.schemas.blocks.attention import Attention
from helmsman.schemas.blocks.feed_forward import Experts, FeedForward
from helmsman.schemas.blocks.recurrent import DeltaRule
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.model import Model

HYBRIDS = ("qwen3_5_moe_text", "qwen3_5_text", "qwen3_next")
"""Families whose files have this metadata."""

OpT = TypeVar("OpT")


def hybrid_facts(model: Model) -> dict[str, Any]:
    """Return keys without the architecture's prefix, in order.

    Raises BadInputError for what files of these architectures cannot state: values of delta rules of another length
    than keys, layers without experts among others with, scores of experts that are not divided by their sum."""
    attention, delta = _first(model, Attention), _first(model, DeltaRule)
    assert attention is not None and delta is not None and model.final is not None, "families with all three"
    assert attention.rope is not None, "families with rotary positions"
    if delta.key_dim != delta.value_dim:
        message, remedy = f"values of another length than keys ({delta.key_dim})", "choose a model with equal ones"
        raise BadInputError(message, field="linear_value_head_dim", value=delta.value_dim, remedy=remedy)
    pairs = attention.rope.rotary_dim // 2
    return {
        "context_length": model.max_context,
        "embedding_length": model.hidden,
        "block_count": model.layers,
        **_network(model),
        "attention.head_count": attention.heads,
        "attention.head_count_kv": attention.kv_heads,
        "attention.key_length": attention.head_dim,
        "attention.value_length": attention.value_dim,
        "attention.layer_norm_rms_epsilon": model.final.eps,
        "vocab_size": model.vocab,
        "rope.freq_base": attention.rope.theta,
        "rope.dimension_count": attention.rope.rotary_dim,
        # Of every three pairs of values one turns by time, one by height, one by width: the same for text.
        "rope.dimension_sections": [(pairs + 2) // 3, (pairs + 1) // 3, pairs // 3, 0],
        "ssm.conv_kernel": delta.taps,
        "ssm.state_size": delta.key_dim,
        "ssm.group_count": delta.key_heads,
        "ssm.time_step_rank": delta.value_heads,
        "ssm.inner_size": delta.value_heads * delta.value_dim,
        "attention.recurrent_layers": [block.bodies[0].op.kind == "delta-rule" for block in model.blocks],
    }


def _bodies(model: Model) -> Iterator[Any]:
    yield from (body.op for block in model.blocks for body in block.bodies)


def _first(model: Model, kind: type[OpT]) -> OpT | None:
    return next((op for op in _bodies(model) if isinstance(op, kind)), None)


def _network(model: Model) -> dict[str, Any]:
    network, experts = _first(model, FeedForward), _first(model, Experts)
    if experts is None:
        assert network is not None, "a family with networks"
        return {"feed_forward_length": network.width}
    if network is not None:
        message, remedy = "blocks without experts among others", "choose a model whose blocks all have experts"
        raise BadInputError(message, field="model.pattern", value=model.pattern[:40], remedy=remedy)
    if not experts.router.normalised:
        message, remedy = "scores of experts that are not divided by their sum", "choose a model where they are"
        raise BadInputError(message, field="norm_topk_prob", value=False, remedy=remedy)
    assert experts.shared is not None, "families with a shared network"
    return {
        "expert_count": experts.experts,
        "expert_used_count": experts.chosen,
        "expert_feed_forward_length": experts.width,
        "expert_shared_feed_forward_length": experts.shared.width,
    }
