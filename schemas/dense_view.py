"""Reads a model of equal, dense blocks back as its dimensions, for what works on such models only."""

from typing import get_args

from helmsman.schemas.blocks.attention import Attention
from helmsman.schemas.blocks.feed_forward import FeedForward
from helmsman.schemas.dense_model import DenseActivation, DenseModel, Family
from helmsman.schemas.described import described
from helmsman.schemas.errors import UnequalBlocksError
from helmsman.schemas.model import Model

_FAMILIES = {name: name for name in get_args(Family)}
_ACTIVATIONS = {name: name for name in get_args(DenseActivation)}


def dense_view(model: Model) -> DenseModel:
    """Return the dimensions of a model of equal, dense blocks. Raises UnequalBlocksError."""
    if len(model.layouts) > 1:
        raise _other(model, f"{len(model.layouts)} kinds of blocks")
    match tuple(body.op for body in model.layouts[0].bodies):
        case (Attention() as attention, FeedForward() as network):
            dense = _dense(model, attention, network)
            if model.native_quantisation is not None:
                raise _other(model, f"weights quantised by {model.native_quantisation.method}")
            if dense is not None and described(dense) == model:
                return dense
            raise _other(model, "blocks of another form than plain attention and a network")
        case operations:
            raise _other(model, f"blocks of {' and '.join(operation.kind for operation in operations)}")


def _dense(model: Model, attention: Attention, network: FeedForward) -> DenseModel | None:
    """Return the dimensions that a description states; None where it is none of equal, dense blocks."""
    position = model.embedding.positions or attention.rope
    if position is None or model.family not in _FAMILIES or model.final is None:
        return None
    if network.activation not in _ACTIVATIONS:
        return None
    return DenseModel(
        name=model.name,
        family=_FAMILIES[model.family],
        layers=model.layers,
        hidden=model.hidden,
        heads=attention.heads,
        kv_heads=attention.kv_heads,
        head_dim=attention.head_dim,
        ffn=network.width,
        vocab=model.vocab,
        max_context=model.max_context,
        activation=_ACTIVATIONS[network.activation],
        gated=network.gated,
        norm=model.final.kind,
        norm_eps=model.final.eps,
        position=position,
        qkv_bias=attention.qkv_bias,
        out_bias=attention.out_bias,
        ffn_bias=network.bias,
        qk_norm=attention.qk_norm is not None,
        tied_embeddings=model.head.tied,
        sliding_window=attention.window,
        native_format=model.native_format,
        eos=model.eos,
        source=model.source,
    )


def _other(model: Model, what: str) -> UnequalBlocksError:
    return UnequalBlocksError(model.name, what, "choose a model of equal dense blocks")
