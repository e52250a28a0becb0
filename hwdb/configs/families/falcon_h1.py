"""Reads Falcon-H1: a state space and attention side by side in every layer, with multipliers at every turn."""

from helmsman.hwdb.config_fields import Fields
from helmsman.hwdb.configs.accounting import KnownKeys
from helmsman.hwdb.configs.families.granite import multiplier
from helmsman.hwdb.configs.parts.assembly import assembled
from helmsman.hwdb.configs.parts.config import Config
from helmsman.hwdb.configs.parts.dimensions import (
    MAX_HEADS,
    activation,
    context,
    grouped_heads,
    hidden_size,
    layer_count,
)
from helmsman.hwdb.configs.parts.rope import RopeRules, rope
from helmsman.hwdb.configs.parts.state_space import inner_heads, longest_step
from helmsman.schemas.blocks.attention import Attention
from helmsman.schemas.blocks.block import Block, Body, Residual
from helmsman.schemas.blocks.feed_forward import FeedForward
from helmsman.schemas.blocks.norms import Norm
from helmsman.schemas.blocks.recurrent import StateSpace
from helmsman.schemas.model import Embedding, Head, Model

FALCON_H1_KEYS = KnownKeys(
    without_effect=frozenset({"mamba_chunk_size", "mamba_expand"}), one_value={"mamba_use_mlp": (True,)}
)


def falcon_h1(config: Config) -> Model:
    """Return a Falcon-H1, which is planned and not run where a multiplier is missing: no release has the class's 1."""
    fields = config.fields
    norm = Norm(eps=fields.real("rms_norm_eps", 1e-5, high=1.0))
    gate, down = multipliers(fields, "mlp_multipliers", 2)
    width, act = fields.integer("intermediate_size"), activation(fields, "hidden_act", "silu")
    bias = fields.flag("mlp_bias", False)
    network = FeedForward(width=width, activation=act, gated=True, bias=bias, gate_scale=gate)
    mixers = (_state_space(fields, norm), _attention(config))
    residuals = (Residual(bodies=mixers, pre=norm), Residual(bodies=(Body(op=network, out_scale=down),), pre=norm))
    return assembled(
        config,
        (Block(letter="H", residuals=residuals),) * layer_count(fields),
        norm,
        embedding=Embedding(scale=multiplier(fields, "embedding_multiplier")),
        head=Head(scale=multiplier(fields, "lm_head_multiplier")),
        eos=(2,),
    )


def multipliers(fields: Fields, key: str, count: int) -> tuple[float, ...]:
    """Return as many multipliers as there must be; ones where they are not stated, as `multiplier` does."""
    if fields.withholds(key):
        return (1.0,) * count
    return fields.reals(key, count)


def _attention(config: Config) -> Body:
    fields = config.fields
    heads, bias = grouped_heads(fields), fields.flag("attention_bias", False)
    attention = Attention(
        heads=heads.count,
        kv_heads=heads.kv,
        head_dim=heads.dim,
        value_dim=heads.dim,
        scale=heads.scale,
        qkv_bias=bias,
        out_bias=bias,
        rope=rope(fields, config.family, heads.dim, context(fields), RopeRules(scalings=("linear", "llama3", "yarn"))),
        key_scale=multiplier(fields, "key_multiplier"),
    )
    in_scale, out_scale = (multiplier(fields, f"attention_{side}_multiplier") for side in ("in", "out"))
    return Body(op=attention, in_scale=in_scale, out_scale=out_scale)


def _state_space(fields: Fields, norm: Norm) -> Body:
    if "mamba_d_ssm" in fields.content and not fields.has("mamba_d_ssm"):
        inner, what = fields.integer("mamba_expand", 2, high=64) * hidden_size(fields), "mamba_expand x hidden_size"
    else:
        inner, what = fields.integer("mamba_d_ssm"), "mamba_d_ssm"
    heads, dim = inner_heads(fields, inner, what)
    groups, bias = fields.integer("mamba_n_groups", high=MAX_HEADS), fields.flag("mamba_proj_bias", False)
    if heads % groups:
        raise fields.wrong("mamba_n_groups", f"must divide mamba_n_heads ({heads})", "correct one of the two")
    if fields.flag("projectors_bias", bias) != bias:
        raise fields.wrong("projectors_bias", "not covered: a bias in one projection alone", "correct mamba_proj_bias")
    gate, fed, into, out, step = multipliers(fields, "ssm_multipliers", 5)
    first = fields.flag("mamba_norm_before_gate", True)
    space = StateSpace(
        heads=heads,
        head_dim=dim,
        state=fields.integer("mamba_d_state"),
        groups=groups,
        taps=fields.integer("mamba_d_conv", 4, low=2, high=64),
        conv_bias=fields.flag("mamba_conv_bias", True),
        bias=bias,
        norm=norm if fields.flag("mamba_rms_norm", False) else None,
        norm_first=first,
        scales=(gate, fed, into, out, step),
        longest_step=longest_step(fields),
    )
    in_scale, out_scale = (multiplier(fields, f"ssm_{side}_multiplier") for side in ("in", "out"))
    return Body(op=space, in_scale=in_scale, out_scale=out_scale)
