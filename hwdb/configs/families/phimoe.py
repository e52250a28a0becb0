"""Reads Phi-3.5-MoE: layer norms with biases, a sparse mixer, and a longrope whose magnitudes the config states."""

from helmsman.hwdb.configs.accounting import KnownKeys
from helmsman.hwdb.configs.parts.assembly import assembled, block
from helmsman.hwdb.configs.parts.config import Config
from helmsman.hwdb.configs.parts.dimensions import MAX_CONTEXT, context, grouped_heads, layer_count
from helmsman.hwdb.configs.parts.networks import expert_counts, gated_experts
from helmsman.hwdb.configs.parts.rope import RopeRules, rope, scaling_fields
from helmsman.schemas.blocks.attention import Attention
from helmsman.schemas.blocks.feed_forward import Router
from helmsman.schemas.blocks.norms import Norm
from helmsman.schemas.model import Head, Model

_ROPE = RopeRules(theta=1e6, scalings=("longrope",), stated_magnitudes=True)
_CHOSEN = 2
"""Experts that the sparse mixer takes: its method is written for two."""

PHIMOE_KEYS = KnownKeys(without_effect=frozenset({"original_max_position_embeddings"}))


def phimoe(config: Config) -> Model:
    """Return a Phi-3.5-MoE."""
    fields = config.fields
    heads, max_context = grouped_heads(fields), context(fields)
    norm = Norm(kind="layer", eps=fields.real("rms_norm_eps", 1e-5, high=1.0), bias=True)
    bias = fields.flag("attention_bias", False)
    attention = Attention(
        heads=heads.count,
        kv_heads=heads.kv,
        head_dim=heads.dim,
        value_dim=heads.dim,
        scale=heads.scale,
        qkv_bias=bias,
        out_bias=bias,
        rope=rope(fields, config.family, heads.dim, max_context, _ROPE),
        window=fields.integer("sliding_window", high=MAX_CONTEXT) if fields.has("sliding_window") else None,
    )
    if fields.has("original_max_position_embeddings") and not scaling_fields(fields).content:
        fields.withholds("rope_scaling")  # it reaches further than its rotation was made for
    counts = expert_counts(fields, "num_local_experts", "num_experts_per_tok")
    if counts[1] != _CHOSEN:
        raise fields.wrong("num_experts_per_tok", "not covered by the sparse mixer", f"covered: {_CHOSEN}")
    jitter = fields.real("router_jitter_noise", 0.01)
    router = Router(score="none", choice="sparse-mixer", normalised=False, jitter=jitter)
    layer = block("a", norm, attention, gated_experts(fields, counts, "intermediate_size", router))
    head = Head(bias=fields.flag("lm_head_bias", False))
    return assembled(config, (layer,) * layer_count(fields), norm, head=head, eos=(2,))
