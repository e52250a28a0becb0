"""Reads OPT: learned positions, layer norms before what they norm, or after it as in OPT-350M, whose embedding is
narrow."""

from helmsman.hwdb.config_fields import Fields
from helmsman.hwdb.configs.accounting import KnownKeys
from helmsman.hwdb.configs.families.dense import check_dense, described_config
from helmsman.hwdb.configs.parts.assembly import assembled
from helmsman.hwdb.configs.parts.config import Config
from helmsman.hwdb.configs.parts.dimensions import (
    MAX_HEADS,
    activation,
    context,
    end_tokens,
    head_dim_from_hidden,
    hidden_size,
    layer_count,
    native_format,
    source,
    tied,
)
from helmsman.schemas.blocks.attention import Attention
from helmsman.schemas.blocks.block import Block, Body, Residual
from helmsman.schemas.blocks.feed_forward import FeedForward
from helmsman.schemas.blocks.norms import Norm
from helmsman.schemas.blocks.positions import LearnedPositions
from helmsman.schemas.dense_model import DenseModel
from helmsman.schemas.model import Embedding, Head, Model

_NORM_EPS = 1e-5
"""torch.nn.LayerNorm's default: OPT's config has no key for it."""

_EOS = (2,)
_POSITIONS = LearnedPositions(offset=2)

OPT_KEYS = KnownKeys()


def opt(config: Config) -> Model:
    """Return an OPT."""
    fields = config.fields
    check_dense(fields, "opt")
    hidden = hidden_size(fields)
    before = fields.flag("do_layer_norm_before", True)
    final = before and not fields.flag("_remove_final_layer_norm", False)
    plain = final and fields.flag("layer_norm_elementwise_affine", True)
    width = fields.integer("word_embed_proj_dim", hidden)
    if plain and width == hidden:
        return described_config(config, _dense(config))
    return _other(config, before, final, None if width == hidden else width)


def _heads(fields: Fields) -> tuple[int, int]:
    heads = fields.integer("num_attention_heads", high=MAX_HEADS)
    return heads, head_dim_from_hidden(fields, hidden_size(fields), heads)


def _dense(config: Config) -> DenseModel:
    fields = config.fields
    heads, head_dim = _heads(fields)
    bias = fields.flag("enable_bias", True)
    return DenseModel(
        name=config.name,
        family="opt",
        layers=layer_count(fields),
        hidden=hidden_size(fields),
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim,
        ffn=fields.integer("ffn_dim"),
        vocab=fields.integer("vocab_size"),
        max_context=context(fields),
        activation=activation(fields, "activation_function", "relu"),
        gated=False,
        norm="layer",
        norm_eps=_NORM_EPS,
        position=_POSITIONS,
        qkv_bias=bias,
        out_bias=bias,
        ffn_bias=bias,
        tied_embeddings=tied(config, True),
        native_format=native_format(config),
        eos=end_tokens(config, _EOS),
        source=source(config),
    )


def _other(config: Config, before: bool, final: bool, width: int | None) -> Model:
    """Return an OPT that is no model of equal, plain blocks: norms after, none at the end, a narrow embedding."""
    fields = config.fields
    heads, head_dim = _heads(fields)
    bias, stored = fields.flag("enable_bias", True), fields.flag("layer_norm_elementwise_affine", True)
    norm = Norm(kind="layer", eps=_NORM_EPS, weight=stored, bias=stored)
    attention = Attention(
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim,
        value_dim=head_dim,
        scale=head_dim**-0.5,
        qkv_bias=bias,
        out_bias=bias,
    )
    act = activation(fields, "activation_function", "relu")
    network = FeedForward(width=fields.integer("ffn_dim"), activation=act, gated=False, bias=bias)
    pre, after = (norm, None) if before else (None, norm)
    residuals = tuple(Residual(bodies=(Body(op=op),), pre=pre, after=after) for op in (attention, network))
    return assembled(
        config,
        (Block(letter="A", residuals=residuals),) * layer_count(fields),
        norm if final else None,
        embedding=Embedding(positions=_POSITIONS, width=width),
        head=Head(width=width),
        tied_default=True,
        eos=_EOS,
    )
