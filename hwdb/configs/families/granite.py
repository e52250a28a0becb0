"""Reads Granite 3 and those of Granite 4 without state spaces: every layer attends, and has a dense network or experts,
with multipliers that every release states."""

from collections.abc import Sequence

from helmsman.hwdb.config_fields import Fields
from helmsman.hwdb.configs.accounting import KnownKeys
from helmsman.hwdb.configs.parts.assembly import assembled, block
from helmsman.hwdb.configs.parts.config import Config
from helmsman.hwdb.configs.parts.dimensions import context, grouped_heads, layer_count
from helmsman.hwdb.configs.parts.networks import expert_counts, gated_experts, gated_network
from helmsman.hwdb.configs.parts.rope import rope
from helmsman.schemas.blocks.attention import Attention
from helmsman.schemas.blocks.block import Block
from helmsman.schemas.blocks.feed_forward import Experts, FeedForward, Router
from helmsman.schemas.blocks.norms import Norm
from helmsman.schemas.model import Embedding, Head, Model

ROUTER = Router(score="none", weights="softmax-of-chosen", normalised=False)

GRANITE_KEYS = KnownKeys()


def granite(config: Config) -> Model:
    """Return a Granite with a dense network in every layer."""
    return _granite(config, gated_network(config.fields, bias=config.fields.flag("mlp_bias", False)))


def granite_moe(config: Config) -> Model:
    """Return a Granite with experts in every layer, beside a shared network where it has one."""
    return _granite(config, granite_experts(config.fields, _shared(config.fields)))


def _shared(fields: Fields) -> FeedForward | None:
    key = "shared_intermediate_size"
    return gated_network(fields, key) if fields.has(key) and fields.integer(key, low=0) else None


def _granite(config: Config, network: FeedForward | Experts) -> Model:
    norm = granite_norm(config.fields)
    letter = "a" if isinstance(network, Experts) else "A"
    scale = multiplier(config.fields, "residual_multiplier")
    layer = block(letter, norm, granite_attention(config, rotates=True), network, scale=scale)
    return multiplied(config, (layer,) * layer_count(config.fields), norm)


def granite_norm(fields: Fields) -> Norm:
    """Return the norm of hidden states."""
    return Norm(eps=fields.real("rms_norm_eps", 1e-6, high=1.0))


def granite_experts(fields: Fields, shared: FeedForward | None) -> Experts:
    """Return experts that are weighed by a softmax of the chosen ones' logits."""
    counts = expert_counts(fields, "num_local_experts", "num_experts_per_tok")
    return gated_experts(fields, counts, "intermediate_size", ROUTER, shared=shared)


def granite_attention(config: Config, rotates: bool) -> Attention:
    """Return attention whose scale the config states; `rotates`: whether positions are rotated, or there are none."""
    fields = config.fields
    heads, bias = grouped_heads(fields), fields.flag("attention_bias", False)
    return Attention(
        heads=heads.count,
        kv_heads=heads.kv,
        head_dim=heads.dim,
        value_dim=heads.dim,
        scale=multiplier(fields, "attention_multiplier"),
        qkv_bias=bias,
        out_bias=bias,
        rope=rope(fields, config.family, heads.dim, context(fields)) if rotates else None,
    )


def multiplied(config: Config, blocks: Sequence[Block], norm: Norm) -> Model:
    """Return the model of `blocks`, whose embeddings are multiplied and whose logits are divided."""
    fields = config.fields
    embedding = Embedding(scale=multiplier(fields, "embedding_multiplier"))
    head = Head(divide=multiplier(fields, "logits_scaling"))
    return assembled(config, blocks, norm, embedding=embedding, head=head, eos=(2,))


def multiplier(fields: Fields, key: str) -> float:
    """Return a multiplier; 1 where it is not stated, with which a model is planned and not run."""
    return fields.real(key, 1.0 if fields.withholds(key) else None)
