"""Reads Mixtral, Qwen3-MoE, OLMoE and MiniMax-M2: full attention and experts in every layer, none of them shared."""

from helmsman.hwdb.config_fields import Fields
from helmsman.hwdb.configs.accounting import KnownKeys
from helmsman.hwdb.configs.parts.assembly import assembled, block
from helmsman.hwdb.configs.parts.config import Config
from helmsman.hwdb.configs.parts.dimensions import MAX_CONTEXT, MAX_LAYERS, context, grouped_heads, layer_count
from helmsman.hwdb.configs.parts.networks import expert_counts, gated_experts, gated_network
from helmsman.hwdb.configs.parts.rope import RopeRules, rope
from helmsman.hwdb.configs.parts.routers import fixed, softmax_router
from helmsman.schemas.blocks.attention import Attention
from helmsman.schemas.blocks.feed_forward import Router
from helmsman.schemas.blocks.norms import Norm, QueryKeyNorm
from helmsman.schemas.model import Model

_OLMOE_EOS = (50279,)
_OLMOE_CONTEXT = 4096
_MINIMAX_HEAD_DIM = 128
_EXPERT_KEYS = ("num_experts", "num_local_experts")
"""The keys that state the number of experts: that of released files, and that which transformers 5 writes."""

_MINIMAX_ROTARY = 64
"""MiniMaxM2Config's default of rotary_dim."""

MIXTRAL_KEYS = KnownKeys()
QWEN3_MOE_KEYS = KnownKeys(
    without_effect=frozenset({"sliding_window", "max_window_layers"}), one_value={"use_qk_norm": (True,)}
)
OLMOE_KEYS = KnownKeys()
MINIMAX_KEYS = KnownKeys(
    # Its draft modules are in no public implementation and not in the released files.
    without_effect=frozenset({"use_mtp", "num_mtp_modules", "mtp_transformer_layers"})
)


def mixtral(config: Config) -> Model:
    """Return a Mixtral: the chosen experts' softmax scores are always divided by their sum."""
    fields = config.fields
    heads, max_context = grouped_heads(fields), context(fields)
    norm = Norm(eps=fields.real("rms_norm_eps", 1e-5, high=1.0))
    attention = Attention(
        heads=heads.count,
        kv_heads=heads.kv,
        head_dim=heads.dim,
        value_dim=heads.dim,
        scale=heads.scale,
        rope=rope(fields, config.family, heads.dim, max_context, RopeRules(theta=1e6)),
        window=_window(fields),
    )
    counts = expert_counts(fields, "num_local_experts", "num_experts_per_tok")
    experts = gated_experts(fields, counts, "intermediate_size", softmax_router(fields, None))
    layer = block("a" if attention.window is None else "w", norm, attention, experts)
    return assembled(config, (layer,) * layer_count(fields), norm, eos=(2,))


def _window(fields: Fields) -> int | None:
    return fields.integer("sliding_window", high=MAX_CONTEXT) if fields.has("sliding_window") else None


def qwen3_moe(config: Config) -> Model:
    """Return a Qwen3 with experts in every layer that the config does not make dense."""
    fields = config.fields
    heads, max_context, layers = grouped_heads(fields), context(fields), layer_count(fields)
    norm = Norm(eps=fields.real("rms_norm_eps", 1e-6, high=1.0))
    bias = fields.flag("attention_bias", False)
    attention = Attention(
        heads=heads.count,
        kv_heads=heads.kv,
        head_dim=heads.dim,
        value_dim=heads.dim,
        scale=heads.scale,
        qkv_bias=bias,
        out_bias=bias,
        qk_norm=QueryKeyNorm(norm=norm),
        rope=rope(fields, config.family, heads.dim, max_context),
    )
    counts = expert_counts(fields, _EXPERT_KEYS, "num_experts_per_tok")
    routed = gated_experts(fields, counts, "moe_intermediate_size", softmax_router(fields, "norm_topk_prob"))
    blocks = [block("a", norm, attention, routed)] * layers
    for layer, has_experts in enumerate(routed_layers(fields, layers)):
        if not has_experts:
            blocks[layer] = block("A", norm, attention, gated_network(fields))
    fields.read.add("intermediate_size")
    return assembled(config, blocks, norm)


def routed_layers(fields: Fields, layers: int) -> tuple[bool, ...]:
    """Return which layers have experts: every decoder_sparse_step-th one, but those of mlp_only_layers."""
    step = fields.integer("decoder_sparse_step", 1, high=MAX_LAYERS)
    dense = fields.numbers("mlp_only_layers", layers - 1)
    return tuple(layer not in dense and (layer + 1) % step == 0 for layer in range(layers))


def olmoe(config: Config) -> Model:
    """Return an OLMoE: queries and keys are normed as whole projections, and may be clipped."""
    fields = config.fields
    heads, max_context = grouped_heads(fields), context(fields, _OLMOE_CONTEXT)
    norm = Norm(eps=fields.real("rms_norm_eps", 1e-5, high=1.0))
    bias = fields.flag("attention_bias", False)
    attention = Attention(
        heads=heads.count,
        kv_heads=heads.kv,
        head_dim=heads.dim,
        value_dim=heads.dim,
        scale=heads.scale,
        qkv_bias=bias,
        out_bias=bias,
        qk_norm=QueryKeyNorm(norm=norm, over="projection"),
        rope=rope(fields, config.family, heads.dim, max_context),
        clip=fields.optional_real("clip_qkv"),
    )
    counts = expert_counts(fields, "num_experts", "num_experts_per_tok")
    experts = gated_experts(fields, counts, "intermediate_size", softmax_router(fields, "norm_topk_prob"))
    layer = block("a", norm, attention, experts)
    return assembled(config, (layer,) * layer_count(fields), norm, eos=_OLMOE_EOS, max_context=max_context)


def minimax_m2(config: Config) -> Model:
    """Return a MiniMax-M2: half of a head turns, whole projections are normed, experts are chosen with a correction."""
    fields = config.fields
    heads, max_context = grouped_heads(fields, _MINIMAX_HEAD_DIM), context(fields)
    norm = Norm(eps=fields.real("rms_norm_eps", 1e-6, high=1.0))
    fixed(fields, "qk_norm_type", "per_layer")
    if set(fields.numbers("attn_type_list", 1, count=layer_count(fields))) - {1}:
        raise fields.wrong("attn_type_list", "not covered: layers of linear attention", "covered: 1 for every layer")
    attention = Attention(
        heads=heads.count,
        kv_heads=heads.kv,
        head_dim=heads.dim,
        value_dim=heads.dim,
        scale=heads.scale,
        qk_norm=QueryKeyNorm(norm=norm, over="projection") if fields.flag("use_qk_norm", True) else None,
        rope=rope(fields, config.family, heads.dim, max_context, _minimax_rope(fields, heads.dim)),
    )
    fixed(fields, "scoring_func", "sigmoid")
    router = Router(score="sigmoid", correction=fields.flag("use_routing_bias", True), normalised=True)
    counts = expert_counts(fields, "num_local_experts", "num_experts_per_tok")
    experts = gated_experts(fields, counts, "intermediate_size", router)
    layer = block("a", norm, attention, experts)
    return assembled(config, (layer,) * layer_count(fields), norm, eos=(200020,))


def _minimax_rope(fields: Fields, head_dim: int) -> RopeRules:
    """Return the rotation of rotary_dim dimensions; transformers 5 states their share instead."""
    dim = fields.integer("rotary_dim", min(_MINIMAX_ROTARY, head_dim), high=head_dim)
    return RopeRules(theta=5e6, share=dim / head_dim)
