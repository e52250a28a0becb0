"""Reads Gemma 2 and 3: embeddings times the root of the hidden size, norms around both bodies that store 1 less than
their weights, and layers with windows between those with full attention."""

from math import sqrt

from helmsman.hwdb.config_fields import Fields
from helmsman.hwdb.configs.accounting import KnownKeys
from helmsman.hwdb.configs.parts.assembly import assembled
from helmsman.hwdb.configs.parts.config import Config
from helmsman.hwdb.configs.parts.dimensions import (
    MAX_CONTEXT,
    MAX_LAYERS,
    context,
    grouped_heads,
    hidden_size,
    layer_count,
)
from helmsman.hwdb.configs.parts.gemma_network import gemma_network
from helmsman.hwdb.configs.parts.layers import every_nth, layer_kinds
from helmsman.hwdb.configs.parts.rope import LayerKind, RopeRules, rope, told_apart
from helmsman.schemas.blocks.attention import Attention
from helmsman.schemas.blocks.block import Block, Body, Residual
from helmsman.schemas.blocks.norms import Norm, QueryKeyNorm
from helmsman.schemas.blocks.positions import Rope
from helmsman.schemas.model import Embedding, Head, Model

_HEAD_DIM = 256
_KINDS: tuple[LayerKind, LayerKind] = ("full_attention", "sliding_attention")
_PLAIN = RopeRules(scalings=())
_GLOBAL = RopeRules(theta=1e6, scalings=("linear",))
_LOCAL_THETA = 10000.0

GEMMA_KEYS = KnownKeys(one_value={"use_bidirectional_attention": (False,)})


def gemma2(config: Config) -> Model:
    """Return a Gemma 2: every other layer has a window, scores and logits are capped."""
    fields = config.fields
    layers = layer_count(fields)
    kinds = layer_kinds(fields, "layer_types", layers, _KINDS, every_nth(layers, 2, _KINDS[0], _KINDS[1]))
    norm = _norm(fields)
    softcap = fields.real("attn_logit_softcapping", 50.0)
    turned = rope(fields, config.family, grouped_heads(fields, _HEAD_DIM).dim, context(fields), _PLAIN)
    window = fields.integer("sliding_window", 4096, high=MAX_CONTEXT)
    blocks = {kind: _block(fields, kind, norm, turned, window, softcap=softcap) for kind in _KINDS}
    head = Head(softcap=fields.real("final_logit_softcapping", 30.0))
    return _assembled(config, [blocks[kind] for kind in _kinds(kinds)], norm, head)


def gemma3(config: Config) -> Model:
    """Return the text model of a Gemma 3: windows in all but every sixth layer, which turn by a base of their own."""
    fields = config.fields
    layers = layer_count(fields)
    interval = fields.integer("sliding_window_pattern", 6, high=MAX_LAYERS)
    counted = every_nth(layers, interval, _KINDS[0], _KINDS[1])
    kinds = layer_kinds(fields, "layer_types", layers, _KINDS, counted, rule="sliding_window_pattern")
    norm = _norm(fields)
    window = fields.integer("sliding_window", 4096, high=MAX_CONTEXT)
    qk_norm = QueryKeyNorm(norm=norm)
    softcap = fields.optional_real("attn_logit_softcapping")
    blocks = {
        kind: _block(fields, kind, norm, _gemma3_rope(config, kind), window, softcap=softcap, qk_norm=qk_norm)
        for kind in _KINDS
    }
    head = Head(softcap=fields.optional_real("final_logit_softcapping"))
    return _assembled(config, [blocks[kind] for kind in _kinds(kinds)], norm, head)


def _kinds(names: tuple[str, ...]) -> tuple[LayerKind, ...]:
    return tuple(_KINDS[name == _KINDS[1]] for name in names)


def _norm(fields: Fields) -> Norm:
    return Norm(eps=fields.real("rms_norm_eps", 1e-6, high=1.0), offset=True)


def _gemma3_rope(config: Config, kind: LayerKind) -> Rope:
    """Return the rotation of a kind of layers: those with windows have a lower base and are never scaled."""
    fields = config.fields
    dim, max_context = grouped_heads(fields, _HEAD_DIM).dim, context(fields)
    if kind == "full_attention" or told_apart(fields):
        rules = _GLOBAL if kind == "full_attention" else RopeRules(theta=_LOCAL_THETA, scalings=_GLOBAL.scalings)
        fields.read.update(("rope_theta", "rope_local_base_freq") if told_apart(fields) else ())
        return rope(fields, config.family, dim, max_context, rules, kind)
    return Rope(theta=fields.real("rope_local_base_freq", _LOCAL_THETA), rotary_dim=dim)


def _block(
    fields: Fields,
    kind: LayerKind,
    norm: Norm,
    turned: Rope,
    window: int,
    *,
    softcap: float | None,
    qk_norm: QueryKeyNorm | None = None,
) -> Block:
    heads = grouped_heads(fields, _HEAD_DIM)
    bias = fields.flag("attention_bias", False)
    attention = Attention(
        heads=heads.count,
        kv_heads=heads.kv,
        head_dim=heads.dim,
        value_dim=heads.dim,
        scale=fields.real("query_pre_attn_scalar", 256.0) ** -0.5,
        qkv_bias=bias,
        out_bias=bias,
        qk_norm=qk_norm,
        rope=turned,
        window=window if kind == "sliding_attention" else None,
        softcap=softcap,
    )
    network = gemma_network(fields, fields.integer("intermediate_size"))
    residuals = tuple(Residual(bodies=(Body(op=op),), pre=norm, post=norm) for op in (attention, network))
    return Block(letter="W" if kind == "sliding_attention" else "A", residuals=residuals)


def _assembled(config: Config, blocks: list[Block], norm: Norm, head: Head) -> Model:
    embedding = Embedding(scale=sqrt(hidden_size(config.fields)))
    return assembled(config, blocks, norm, embedding=embedding, head=head, tied_default=True, eos=(1,))
