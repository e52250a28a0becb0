"""Reads gpt-oss: windows in every other layer, a sink per head, biases everywhere, experts with a clamped SwiGLU."""

from helmsman.hwdb.config_fields import Fields
from helmsman.hwdb.configs.accounting import KnownKeys
from helmsman.hwdb.configs.parts.assembly import assembled, block
from helmsman.hwdb.configs.parts.config import Config
from helmsman.hwdb.configs.parts.dimensions import MAX_CONTEXT, context, grouped_heads, layer_count
from helmsman.hwdb.configs.parts.layers import every_nth, layer_kinds
from helmsman.hwdb.configs.parts.networks import expert_counts
from helmsman.hwdb.configs.parts.rope import RopeRules, rope
from helmsman.hwdb.configs.parts.routers import fixed
from helmsman.schemas.blocks.attention import Attention
from helmsman.schemas.blocks.feed_forward import Experts, Router
from helmsman.schemas.blocks.norms import Norm
from helmsman.schemas.model import Model

_HEAD_DIM = 64
_ALPHA = 1.702
_KINDS = ("full_attention", "sliding_attention")
_ROUTER = Router(score="none", bias=True, weights="softmax-of-chosen", normalised=False)

GPT_OSS_KEYS = KnownKeys(without_effect=frozenset({"initial_context_length"}))


def gpt_oss(config: Config) -> Model:
    """Return a gpt-oss."""
    fields = config.fields
    layers = layer_count(fields)
    norm = Norm(eps=fields.real("rms_norm_eps", 1e-5, high=1.0))
    kinds = layer_kinds(fields, "layer_types", layers, _KINDS, every_nth(layers, 2, _KINDS[0], _KINDS[1]))
    window = fields.integer("sliding_window", 128, high=MAX_CONTEXT)
    experts = _experts(fields)
    full = block("a", norm, _attention(config, None), experts)
    slid = block("w", norm, _attention(config, window), experts)
    return assembled(config, [full if kind == _KINDS[0] else slid for kind in kinds], norm)


def _attention(config: Config, window: int | None) -> Attention:
    fields = config.fields
    heads, max_context = grouped_heads(fields, _HEAD_DIM), context(fields)
    bias = fields.flag("attention_bias", True)
    if not (fields.has("rope_scaling") or fields.has("rope_parameters")):
        # The class scales where nothing is said, by numbers that a file should state.
        raise fields.wrong("rope_scaling", "missing", "add rope_scaling, as the model's original config.json has it")
    return Attention(
        heads=heads.count,
        kv_heads=heads.kv,
        head_dim=heads.dim,
        value_dim=heads.dim,
        scale=heads.scale,
        qkv_bias=bias,
        out_bias=bias,
        rope=rope(fields, config.family, heads.dim, max_context, RopeRules(theta=150000.0)),
        window=window,
        sinks=True,
    )


def _experts(fields: Fields) -> Experts:
    experts, chosen = expert_counts(fields, "num_local_experts", "num_experts_per_tok")
    if fields.integer("experts_per_token", chosen) != chosen:
        raise fields.wrong("experts_per_token", f"differs from num_experts_per_tok ({chosen})", "correct one of them")
    fixed(fields, "hidden_act", "silu")
    if fields.real("swiglu_alpha", _ALPHA) != _ALPHA:
        raise fields.wrong("swiglu_alpha", "not covered", f"covered: {_ALPHA}")
    return Experts(
        experts=experts,
        chosen=chosen,
        width=fields.integer("intermediate_size"),
        activation="swiglu_oai",
        bias=True,
        clamp=fields.real("swiglu_limit", 7.0),
        router=_ROUTER,
    )
