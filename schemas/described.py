"""Describes a model of equal blocks, given by its dimensions, block by block."""

from helmsman.schemas.blocks.attention import Attention
from helmsman.schemas.blocks.block import Block, Body, Residual
from helmsman.schemas.blocks.feed_forward import FeedForward
from helmsman.schemas.blocks.norms import Norm, QueryKeyNorm
from helmsman.schemas.blocks.positions import LearnedPositions, Rope
from helmsman.schemas.dense_model import DenseModel
from helmsman.schemas.model import Embedding, Head, Model

SIDE_BY_SIDE = frozenset({"gpt_neox"})
"""Families whose attention and network both read what goes into the block."""


def described(dense: DenseModel) -> Model:
    """Return the description of a model of equal blocks."""
    norm = _norm(dense)
    learned = dense.position if isinstance(dense.position, LearnedPositions) else None
    return Model(
        name=dense.name,
        family=dense.family,
        hidden=dense.hidden,
        vocab=dense.vocab,
        max_context=dense.max_context,
        embedding=Embedding(positions=learned),
        layouts=(Block(letter="A", residuals=_residuals(dense, norm)),),
        pattern="A" * dense.layers,
        final=norm,
        head=Head(tied=dense.tied_embeddings),
        native_format=dense.native_format,
        eos=dense.eos,
        source=dense.source,
    )


def _norm(dense: DenseModel) -> Norm:
    return Norm(kind=dense.norm, eps=dense.norm_eps, bias=dense.norm == "layer")


def _residuals(dense: DenseModel, norm: Norm) -> tuple[Residual, ...]:
    attention = Attention(
        heads=dense.heads,
        kv_heads=dense.kv_heads,
        head_dim=dense.head_dim,
        value_dim=dense.head_dim,
        scale=dense.head_dim**-0.5,
        qkv_bias=dense.qkv_bias,
        out_bias=dense.out_bias,
        qk_norm=QueryKeyNorm(norm=Norm(eps=dense.norm_eps)) if dense.qk_norm else None,
        rope=dense.position if isinstance(dense.position, Rope) else None,
        window=dense.sliding_window,
    )
    network = FeedForward(width=dense.ffn, activation=dense.activation, gated=dense.gated, bias=dense.ffn_bias)
    if dense.family in SIDE_BY_SIDE:
        return (Residual(bodies=(Body(op=attention, pre=norm), Body(op=network, pre=norm))),)
    return (Residual(bodies=(Body(op=attention),), pre=norm), Residual(bodies=(Body(op=network),), pre=norm))


def reshaped(model: Model, **changes: object) -> Model:
    """Return a model of equal, dense blocks with other dimensions; `changes`: fields of DenseModel.

    Raises BadInputError where the model is no such one."""
    return described(model.dense.model_copy(update=changes))
