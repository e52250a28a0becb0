"""The metadata keys of a GGUF file that describe recurrent mixers and the networks beside them, family by family."""

from typing import Any

from helmsman.executor.checkpoint.hybrid_config import first_body
from helmsman.schemas.blocks.attention import Attention
from helmsman.schemas.blocks.feed_forward import Experts, FeedForward
from helmsman.schemas.blocks.recurrent import DeltaRule, ShortConvolution, StateSpace
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.model import Model

_SIGMOID = 2
"""GGUF's number of the function that turns a router's logits into scores."""


def delta_facts(model: Model) -> dict[str, Any]:
    """Return the keys of Qwen3-Next and Qwen3.5. Raises BadInputError for a model that such files cannot describe."""
    attention, delta = first_body(model, Attention), first_body(model, DeltaRule)
    assert attention is not None and attention.rope is not None and delta is not None, "families with all three"
    if delta.key_dim != delta.value_dim:
        raise _unstated("values of another length than keys", "linear_value_head_dim", delta.value_dim)
    pairs = attention.rope.rotary_dim // 2
    # For text, whose tokens have one position, pairs that turn by time, height and width are all the same.
    sections = {"rope.dimension_sections": [(pairs + 2) // 3, (pairs + 1) // 3, pairs // 3, 0]}
    return {
        **({} if model.family == "qwen3_next" else sections),
        "ssm.conv_kernel": delta.taps,
        "ssm.state_size": delta.key_dim,
        "ssm.group_count": delta.key_heads,
        "ssm.time_step_rank": delta.value_heads,
        "ssm.inner_size": delta.value_heads * delta.value_dim,
        "attention.recurrent_layers": [block.bodies[0].op.kind == "delta-rule" for block in model.blocks],
        **_gated_networks(model),
    }


def _gated_networks(model: Model) -> dict[str, Any]:
    network, experts = first_body(model, FeedForward), first_body(model, Experts)
    if experts is None:
        assert network is not None, "a family with networks"
        return {"feed_forward_length": network.width}
    if network is not None:
        raise _unstated("blocks without experts among others", "model.pattern", model.pattern[:40])
    if not experts.router.normalised:
        raise _unstated("scores of experts that are not divided by their sum", "norm_topk_prob", False)
    assert experts.shared is not None, "families with a shared network"
    return {**_counts(experts), "expert_shared_feed_forward_length": experts.shared.width}


def _counts(experts: Experts) -> dict[str, Any]:
    return {
        "expert_count": experts.experts,
        "expert_used_count": experts.chosen,
        "expert_feed_forward_length": experts.width,
    }


def lfm2_facts(model: Model) -> dict[str, Any]:
    """Return the keys of LFM2 and LFM2-MoE. Raises BadInputError for a model that such files cannot describe."""
    convolution, experts = first_body(model, ShortConvolution), first_body(model, Experts)
    network = first_body(model, FeedForward)
    assert convolution is not None, "families with convolutions"
    if convolution.bias:
        raise _unstated("convolutions with a bias", "conv_bias", True)
    width = network or experts
    assert width is not None, "families with networks"
    result: dict[str, Any] = {"feed_forward_length": width.width, "shortconv.l_cache": convolution.taps}
    if experts is None:
        return result
    router = experts.router
    if not (router.correction and router.normalised and router.scaling == 1):
        raise _unstated("a router without bias, or whose scores are not weights", "use_expert_bias", router.correction)
    dense = sum(isinstance(body.op, FeedForward) for block in model.blocks for body in block.bodies)
    return {**result, **_counts(experts), "leading_dense_block_count": dense, "expert_gating_func": _SIGMOID}


def nemotron_facts(model: Model) -> dict[str, Any]:
    """Return the keys of Nemotron-H, each of whose layers has key heads, a network's width, or neither: a state space.

    Raises BadInputError for a model that such files cannot describe."""
    network, experts = first_body(model, FeedForward), first_body(model, Experts)
    if network is not None and experts is not None:
        raise _unstated("blocks without experts among others", "model.pattern", model.pattern[:40])
    assert model.final is not None, "a family with a final norm"
    bodies = [block.bodies[0].op for block in model.blocks]
    result: dict[str, Any] = {
        "attention.layer_norm_epsilon": model.final.eps,
        "feed_forward_length": [op.width if isinstance(op, FeedForward | Experts) else 0 for op in bodies],
        **_state_space(model),
    }
    if experts is None:
        return result
    assert experts.shared is not None, "a family with a shared network"
    groups, router = experts.router.groups, experts.router
    return {
        **result,
        **_counts(experts),
        "expert_shared_feed_forward_length": experts.shared.width,
        "expert_gating_func": _SIGMOID,
        "expert_weights_norm": router.normalised,
        "expert_weights_scale": router.scaling,
        "expert_group_count": 1 if groups is None else groups.count,
        "expert_group_used_count": 1 if groups is None else groups.kept,
        **({} if experts.latent is None else {"moe_latent_size": experts.latent}),
    }


def granite_facts(model: Model) -> dict[str, Any]:
    """Return the keys of Granite 4 hybrids, multipliers among them. Raises BadInputError for a model that such files
    cannot describe."""
    attention, space = first_body(model, Attention), first_body(model, StateSpace)
    network, experts = first_body(model, FeedForward), first_body(model, Experts)
    assert attention is not None, "a family with attention"
    if space is None:
        raise _unstated("attention in all layers", "model.pattern", model.pattern[:40])
    if space.inner != 2 * model.hidden:
        raise _unstated("other state spaces than of twice the hidden values", "mamba_expand", space.inner)
    result: dict[str, Any] = {
        "rope.scaling.finetuned": attention.rope is not None,
        "attention.scale": attention.scale,
        "embedding_scale": model.embedding.scale,
        "residual_scale": model.blocks[0].residuals[0].scale,
        "logit_scale": model.head.divide,
        **_state_space(model),
    }
    if experts is None:
        assert network is not None, "a family with networks"
        return {**result, "feed_forward_length": network.width}
    assert experts.shared is not None, "a family with a shared network"
    shared = {"expert_shared_feed_forward_length": experts.shared.width}
    return {**result, "feed_forward_length": experts.width, **_counts(experts), **shared}


def falcon_facts(model: Model) -> dict[str, Any]:
    """Return the keys of Falcon-H1, whose multipliers are in the weights. Raises BadInputError for a model that such
    files cannot describe."""
    network, space = first_body(model, FeedForward), first_body(model, StateSpace)
    attention = first_body(model, Attention)
    assert network is not None and space is not None and attention is not None, "a family with all three"
    if attention.qkv_bias or network.bias:
        raise _unstated("biases beside multipliers", "attention_bias", attention.qkv_bias)
    if space.norm is not None and space.norm_first:
        raise _unstated("norms of state spaces before their gates", "mamba_norm_before_gate", True)
    if model.head.tied:
        raise _unstated("a head that is the embedding, whose multipliers differ", "tie_word_embeddings", True)
    return {"feed_forward_length": network.width, **_state_space(model)}


def _state_space(model: Model) -> dict[str, Any]:
    space = first_body(model, StateSpace)
    assert space is not None, "families with state spaces"
    if space.bias or not space.conv_bias:
        raise _unstated("projections with a bias, or convolutions without", "use_bias", space.bias)
    if space.longest_step is not None:
        raise _unstated("a longest time step", "time_step_limit", space.longest_step)
    return {
        "ssm.conv_kernel": space.taps,
        "ssm.state_size": space.state,
        "ssm.group_count": space.groups,
        "ssm.time_step_rank": space.heads,
        "ssm.inner_size": space.inner,
    }


def _unstated(message: str, field: str, value: Any) -> BadInputError:
    remedy = "choose another model, or write a Hugging Face directory: leave out `gguf`"
    return BadInputError(f"not in GGUF files of its architecture: {message}", field=field, value=value, remedy=remedy)
