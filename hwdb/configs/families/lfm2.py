"""Reads LFM2 and LFM2-MoE: gated convolutions over a few tokens, attention in some layers, a width that a rule
gives."""

from helmsman.hwdb.config_fields import MAX_DIMENSION, Fields
from helmsman.hwdb.configs.accounting import KnownKeys
from helmsman.hwdb.configs.parts.assembly import assembled, block
from helmsman.hwdb.configs.parts.config import Config
from helmsman.hwdb.configs.parts.dimensions import context, grouped_heads, hidden_size, layer_count, tied
from helmsman.hwdb.configs.parts.layers import layer_kinds
from helmsman.hwdb.configs.parts.networks import expert_counts
from helmsman.hwdb.configs.parts.rope import RopeRules, rope
from helmsman.schemas.blocks.attention import Attention
from helmsman.schemas.blocks.block import BodyKind
from helmsman.schemas.blocks.feed_forward import Experts, FeedForward, Router
from helmsman.schemas.blocks.norms import Norm, QueryKeyNorm
from helmsman.schemas.blocks.recurrent import ShortConvolution
from helmsman.schemas.model import Model

_KINDS = ("full_attention", "conv")
_ROPE = RopeRules(theta=1e6, scalings=())
_EPS = 1e-6
"""The number that LFM2-MoE adds to the sum of the chosen scores before weights are divided by it."""

_HIDDEN = ("block_dim", "conv_dim", "conv_dim_out")

_UNUSED = """
block_mlp_init_scale block_norm_eps block_out_init_scale block_use_xavier_init conv_use_xavier_init full_attn_idxs
intermediate_size theta
"""

LFM2_KEYS = KnownKeys(
    without_effect=frozenset(_UNUSED.split()),
    one_value={"block_use_swiglu": (True,), "use_pos_enc": (True,)},
)
LFM2_MOE_KEYS = KnownKeys(one_value={"use_pos_enc": (True,)})


def lfm2(config: Config) -> Model:
    """Return a dense LFM2."""
    fields = config.fields
    _check_copies(fields)
    network = FeedForward(width=_width(fields), activation="silu", gated=True)
    return _assembled(config, [network] * layer_count(fields))


def lfm2_moe(config: Config) -> Model:
    """Return an LFM2 whose layers have experts from the third on."""
    fields = config.fields
    layers = layer_count(fields)
    dense = fields.integer("num_dense_layers", 2, low=0, high=layers)
    network = FeedForward(width=fields.integer("intermediate_size"), activation="silu", gated=True)
    experts, chosen = expert_counts(fields, "num_experts", "num_experts_per_tok")
    router = Router(
        score="sigmoid",
        correction=fields.flag("use_expert_bias", True),
        normalised=fields.flag("norm_topk_prob", True),
        normalise_eps=_EPS,
        scaling=fields.real("routed_scaling_factor", 1.0),
    )
    width = fields.integer("moe_intermediate_size")
    routed = Experts(experts=experts, chosen=chosen, width=width, activation="silu", router=router)
    return _assembled(config, [network if layer < dense else routed for layer in range(layers)])


def _assembled(config: Config, networks: list[FeedForward | Experts]) -> Model:
    fields = config.fields
    norm = Norm(eps=fields.real("norm_eps", 1e-5, high=1.0))
    convolution = ShortConvolution(
        taps=fields.integer("conv_L_cache", 3, low=2, high=64), bias=fields.flag("conv_bias", False)
    )
    mixers: dict[str, tuple[str, BodyKind]] = {
        _KINDS[0]: ("A", _attention(config, norm)),
        _KINDS[1]: ("C", convolution),
    }
    blocks = []
    for kind, network in zip(_kinds(fields, len(networks)), networks, strict=True):
        letter, mixer = mixers[kind]
        blocks.append(block(letter.lower() if isinstance(network, Experts) else letter, norm, mixer, network))
    return assembled(config, blocks, norm, tied_default=_tied_default(config), eos=(2,))


def _tied_default(config: Config) -> bool:
    """Return whether head and embedding are one where tie_word_embeddings says nothing: tie_embedding, or true.

    Raises BadInputError where both are there and differ."""
    fields = config.fields
    default = fields.flag("tie_embedding", True)
    if fields.has("tie_embedding") and tied(config, default) != default:
        raise fields.wrong("tie_embedding", "differs from tie_word_embeddings", "correct one of the two")
    return default


def _kinds(fields: Fields, layers: int) -> tuple[str, ...]:
    """Return the kind of every layer, as listed, or attention where full_attn_idxs says, or everywhere."""
    listed = "full_attn_idxs" in fields.content and fields.has("full_attn_idxs")
    full = fields.numbers("full_attn_idxs", layers - 1) if listed else range(layers)
    counted = tuple(_KINDS[layer not in full] for layer in range(layers))
    kinds = layer_kinds(
        fields, "layer_types", layers, _KINDS, counted if listed or not fields.has("layer_types") else None
    )
    if listed and kinds != counted:
        raise fields.wrong("full_attn_idxs", "contradicts layer_types", "correct one of the two")
    return kinds


def _attention(config: Config, norm: Norm) -> Attention:
    fields = config.fields
    heads = grouped_heads(fields)
    return Attention(
        heads=heads.count,
        kv_heads=heads.kv,
        head_dim=heads.dim,
        value_dim=heads.dim,
        scale=heads.scale,
        qk_norm=QueryKeyNorm(norm=norm),
        rope=rope(fields, config.family, heads.dim, context(fields), _ROPE),
    )


def _width(fields: Fields) -> int:
    """Return the width of networks: two thirds of block_ff_dim, rounded up, unless that is as written."""
    key = "block_ff_dim" if fields.has("block_ff_dim") else "intermediate_size"
    width = fields.integer(key)
    multiple = fields.integer("block_multiple_of", 256)
    factor = fields.real("block_ffn_dim_multiplier", 1.0, high=1024.0)
    if not fields.flag("block_auto_adjust_ff_dim", True):
        return width
    adjusted = int(factor * (2 * width // 3))
    rounded = -(-adjusted // multiple) * multiple
    if not 0 < rounded <= MAX_DIMENSION:
        raise fields.wrong(key, f"gives networks of {rounded} values", "correct it or block_ffn_dim_multiplier")
    return rounded


def _check_copies(fields: Fields) -> None:
    """Raise BadInputError where a key that repeats another says something else."""
    for key in _HIDDEN:
        if fields.has(key) and fields.integer(key) != hidden_size(fields):
            raise fields.wrong(key, "not covered: another width than hidden_size", "choose another model")
    if fields.has("num_heads") and fields.integer("num_heads") != fields.integer("num_attention_heads"):
        raise fields.wrong("num_heads", "differs from num_attention_heads", "correct one of the two")
