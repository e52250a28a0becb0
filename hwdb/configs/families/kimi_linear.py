"""Reads Kimi-Linear: delta rules with a decay per dimension, latent attention without positions in every fourth
layer."""

from helmsman.hwdb.config_fields import Fields
from helmsman.hwdb.configs.accounting import KnownKeys
from helmsman.hwdb.configs.parts.assembly import assembled, block
from helmsman.hwdb.configs.parts.config import Config
from helmsman.hwdb.configs.parts.dimensions import MAX_CONTEXT, MAX_HEADS, MAX_LAYERS, layer_count
from helmsman.hwdb.configs.parts.latent import latent_attention
from helmsman.hwdb.configs.parts.layers import dense_layers, layer_kinds
from helmsman.hwdb.configs.parts.networks import expert_counts, gated_experts, gated_network, shared_network
from helmsman.hwdb.configs.parts.routers import fixed, sigmoid_router
from helmsman.schemas.blocks.block import BodyKind
from helmsman.schemas.blocks.feed_forward import Experts
from helmsman.schemas.blocks.norms import Norm
from helmsman.schemas.blocks.recurrent import DeltaRule
from helmsman.schemas.model import Model

_KINDS = ("full_attention", "linear_attention")
_FLAT = {
    "num_heads": "linear_num_heads",
    "head_dim": "linear_head_dim",
    "short_conv_kernel_size": "linear_conv_kernel_dim",
}
"""Keys of transformers 5 for what released files state within linear_attn_config."""

_CONTEXT = 2**20
"""KimiLinearConfig's default of model_max_length."""

KIMI_LINEAR_KEYS = KnownKeys(
    # Released files have a stray head_dim that nothing uses, and rotations that no layer has.
    without_effect=frozenset({"head_dim", "rope_theta", "rope_scaling", "use_grouped_topk"}),
    one_value={"mla_use_nope": (True,), "num_nextn_predict_layers": (0,)},
)


def kimi_linear(config: Config) -> Model:
    """Return a Kimi-Linear."""
    fields = config.fields
    norm, layers = Norm(eps=fields.real("rms_norm_eps", 1e-5, high=1.0)), layer_count(fields)
    mixers: dict[str, tuple[str, BodyKind]] = {
        "full_attention": ("L", latent_attention(config, rotates=False)),
        "linear_attention": ("G", _delta(fields, norm)),
    }
    experts, network = _experts(fields), gated_network(fields)
    blocks = []
    for kind, width in zip(_kinds(fields, layers), dense_layers(fields, layers, 1), strict=True):
        letter, mixer = mixers[kind]
        dense = width == "dense"
        blocks.append(block(letter if dense else letter.lower(), norm, mixer, network if dense else experts))
    return assembled(config, blocks, norm, eos=(163586,), max_context=_context(fields))


def _context(fields: Fields) -> int:
    """Return the longest context, by either of its names."""
    stated = [key for key in ("max_position_embeddings", "model_max_length") if fields.has(key)]
    return fields.integer(stated[0] if stated else "model_max_length", _CONTEXT, high=MAX_CONTEXT)


def _kinds(fields: Fields, layers: int) -> tuple[str, ...]:
    """Return the kind of every layer; linear_attn_config lists them counting from 1."""
    if not fields.has("linear_attn_config"):
        return layer_kinds(fields, "layer_types", layers, _KINDS)
    listed = fields.inner("linear_attn_config")
    full = listed.numbers("full_attn_layers", MAX_LAYERS)
    linear = listed.numbers("kda_layers", MAX_LAYERS)
    if sorted((*full, *linear)) != list(range(1, layers + 1)):
        message = f"with kda_layers must name each of the layers 1 to {layers} once"
        raise listed.wrong("full_attn_layers", message, "correct one of the two")
    counted = tuple(_KINDS[layer + 1 in linear] for layer in range(layers))
    if layer_kinds(fields, "layer_types", layers, _KINDS, counted) != counted:
        raise fields.wrong("layer_types", "contradicts linear_attn_config", "correct one of the two")
    return counted


def _delta(fields: Fields, norm: Norm) -> DeltaRule:
    """Return the delta rule, whose decay comes through as many values as a head has."""
    heads, dim = _size(fields, "num_heads"), _size(fields, "head_dim")
    return DeltaRule(
        key_heads=heads,
        value_heads=heads,
        key_dim=dim,
        value_dim=dim,
        taps=_size(fields, "short_conv_kernel_size", low=2, high=64),
        decay="dimension",
        rank=dim,
        norm=norm,
        gate="sigmoid",
    )


def _size(fields: Fields, key: str, low: int = 1, high: int = MAX_HEADS) -> int:
    """Return a size that linear_attn_config states, or transformers 5's key for it, or both alike."""
    flat = _FLAT[key]
    if not fields.has("linear_attn_config"):
        return fields.integer(flat, low=low, high=high)
    size = fields.inner("linear_attn_config").integer(key, low=low, high=high)
    if fields.integer(flat, size, low=low, high=high) != size:
        raise fields.wrong(flat, f"differs from linear_attn_config ({size})", "correct one of the two")
    return size


def _experts(fields: Fields) -> Experts:
    counts = expert_counts(fields, "num_experts", "num_experts_per_token")
    fixed(fields, "moe_router_activation_func", "sigmoid")
    router = sigmoid_router(
        fields, counts[0], groups_key="num_expert_group", normalised_key="moe_renormalize", scaling=2.446
    )
    shared = shared_network(fields, "num_shared_experts", fields.integer("moe_intermediate_size"), 1)
    return gated_experts(fields, counts, "moe_intermediate_size", router, shared=shared)
