"""Reads Gemma 4: wider heads in full attention, values that are keys, caches that later layers share, experts beside
the dense network, and a table of inputs per layer."""

from math import sqrt
from typing import NamedTuple

from helmsman.hwdb.config_fields import Fields
from helmsman.hwdb.configs.accounting import KnownKeys
from helmsman.hwdb.configs.families.gemma4_heads import full_heads
from helmsman.hwdb.configs.parts.assembly import assembled
from helmsman.hwdb.configs.parts.config import Config
from helmsman.hwdb.configs.parts.dimensions import MAX_CONTEXT, context, grouped_heads, hidden_size, layer_count
from helmsman.hwdb.configs.parts.gemma_network import gemma_activation, gemma_network
from helmsman.hwdb.configs.parts.layers import every_nth, layer_kinds
from helmsman.hwdb.configs.parts.networks import expert_counts
from helmsman.hwdb.configs.parts.rope import LayerKind, RopeRules, rope, told_apart
from helmsman.schemas.blocks.attention import Attention
from helmsman.schemas.blocks.block import Block, Body, Residual
from helmsman.schemas.blocks.feed_forward import Experts, PerLayerInput, PerLayerTable, Router
from helmsman.schemas.blocks.norms import Norm, QueryKeyNorm
from helmsman.schemas.blocks.positions import ProportionalScaling, Rope
from helmsman.schemas.model import Embedding, Head, Model

_HEAD_DIM = 256
_VOCAB = 262144
_PER_LAYER = 256
"""Gemma4TextConfig's default width of the inputs per layer: 0 must be stated where there are none."""

_KINDS: tuple[LayerKind, LayerKind] = ("full_attention", "sliding_attention")
_FULL = RopeRules(theta=1e6, scalings=("proportional",))
_WINDOW = RopeRules(theta=10000.0, scalings=())
_SHARE = 0.25
_LETTERS = {
    ("full_attention", False): "A",
    ("sliding_attention", False): "W",
    ("full_attention", True): "B",
    ("sliding_attention", True): "V",
}
"""B and V read caches of earlier layers A and W; small letters have experts."""

_EXPERT_KEYS = ("expert_intermediate_size", "moe_intermediate_size", "num_experts", "top_k_experts")
"""Keys that enable_moe_block must stand beside."""

GEMMA4_KEYS = KnownKeys(one_value={"use_bidirectional_attention": ("vision",), **dict.fromkeys(_EXPERT_KEYS, ())})


class _Layer(NamedTuple):
    kind: LayerKind
    cache_of: int | None


def gemma4(config: Config) -> Model:
    """Return the text model of a Gemma 4."""
    fields = config.fields
    width = fields.integer("hidden_size_per_layer_input", _PER_LAYER, low=0)
    norm = _norm(fields)
    rows = fields.integer("vocab_size_per_layer_input", _VOCAB)
    table = PerLayerTable(vocab=rows, width=width, norm=norm) if width else None
    layers = _layers(fields)
    blocks = {layer: _block(config, layer, table is not None) for layer in dict.fromkeys(layers)}
    return assembled(
        config,
        [blocks[layer] for layer in layers],
        norm,
        embedding=Embedding(scale=sqrt(hidden_size(fields))),
        head=Head(softcap=fields.optional_real("final_logit_softcapping")),
        tied_default=True,
        eos=(1,),
        per_layer_table=table,
    )


def _norm(fields: Fields) -> Norm:
    return Norm(eps=fields.real("rms_norm_eps", 1e-6, high=1.0))


def _layers(fields: Fields) -> tuple[_Layer, ...]:
    """Return the kind of every layer, the last of which always has full attention, and whose cache it reads."""
    count = layer_count(fields)
    names = layer_kinds(fields, "layer_types", count, _KINDS, every_nth(count, 6, _KINDS[0], _KINDS[1]))
    kinds = tuple(_KINDS[name == _KINDS[1]] for name in (*names[:-1], _KINDS[0]))
    shared = fields.integer("num_kv_shared_layers", 0, low=0, high=count - 1)
    own = kinds[: count - shared]
    for kind in dict.fromkeys(kinds[count - shared :]):
        if kind not in own:
            message = f"leaves no layer before of kind {kind} whose cache could be read"
            raise fields.wrong("num_kv_shared_layers", message, "correct it or layer_types")
    last = {kind: len(own) - 1 - own[::-1].index(kind) for kind in dict.fromkeys(own)}
    return tuple(_Layer(kind, None if layer < len(own) else last[kind]) for layer, kind in enumerate(kinds))


def _block(config: Config, layer: _Layer, has_table: bool) -> Block:
    fields = config.fields
    norm, shares = _norm(fields), layer.cache_of is not None
    wide = fields.flag("use_double_wide_mlp", False) and shares
    network = gemma_network(fields, fields.integer("intermediate_size") * (2 if wide else 1))
    experts = _experts(fields) if fields.flag("enable_moe_block", False) else None
    residuals = [Residual(bodies=(Body(op=_attention(config, layer)),), pre=norm, post=norm)]
    if experts is None:
        residuals.append(Residual(bodies=(Body(op=network),), pre=norm, post=norm))
    else:
        # Each body has norms of its own: the router norms what goes into the residual itself.
        bodies = (Body(op=network, pre=norm, post=norm), Body(op=experts, pre=norm, post=norm))
        residuals.append(Residual(bodies=bodies, post=norm))
    if has_table:
        inputs = PerLayerInput(activation=gemma_activation(fields))
        residuals.append(Residual(bodies=(Body(op=inputs),), post=norm))
    letter = _LETTERS[layer.kind, shares]
    return Block(letter=letter.lower() if experts else letter, residuals=tuple(residuals), scale="stored")


def _attention(config: Config, layer: _Layer) -> Attention:
    fields = config.fields
    full = layer.kind == "full_attention"
    heads = grouped_heads(fields, _HEAD_DIM)
    heads = full_heads(fields, heads, [kind.kind == "full_attention" for kind in _layers(fields)]) if full else heads
    norm, bias = _norm(fields), fields.flag("attention_bias", False)
    return Attention(
        heads=heads.count,
        kv_heads=heads.kv,
        head_dim=heads.dim,
        value_dim=heads.dim,
        scale=1.0,
        qkv_bias=bias,
        out_bias=bias,
        qk_norm=QueryKeyNorm(norm=norm),
        value_norm=Norm(eps=norm.eps, weight=False),
        values="keys" if full and fields.flag("attention_k_eq_v", False) else "own",
        rope=_rope(config, layer.kind, heads.dim),
        window=None if full else fields.integer("sliding_window", 512, high=MAX_CONTEXT),
        cache_of=layer.cache_of,
    )


def _rope(config: Config, kind: LayerKind, head_dim: int) -> Rope:
    """Return the rotation of a kind of layers: a quarter of the pairs of a whole head with full attention."""
    fields = config.fields
    if told_apart(fields):
        return rope(fields, config.family, head_dim, context(fields), _FULL if kind == _KINDS[0] else _WINDOW, kind)
    if fields.has("rope_parameters") or fields.has("rope_scaling"):
        key = "rope_parameters" if fields.has("rope_parameters") else "rope_scaling"
        raise fields.wrong(
            key, "rotations per kind of layers are expected", f"give one for each of {', '.join(_KINDS)}"
        )
    if kind == "sliding_attention":
        return Rope(theta=_WINDOW.theta, rotary_dim=head_dim)
    return Rope(theta=_FULL.theta, rotary_dim=head_dim, scaling=ProportionalScaling(share=_SHARE))


def _experts(fields: Fields) -> Experts:
    experts, chosen = expert_counts(fields, "num_experts", "top_k_experts")
    router = Router(
        score="softmax", normalised=True, input_norm=Norm(eps=_norm(fields).eps, weight=False), expert_scale=True
    )
    width = fields.integer("moe_intermediate_size")
    return Experts(experts=experts, chosen=chosen, width=width, activation=gemma_activation(fields), router=router)
