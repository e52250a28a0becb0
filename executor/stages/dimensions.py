"""A model's dimensions as the native stage takes them."""

from helmsman.executor.stages.dense import Dimensions
from helmsman.lowering.common_attention import common_attention
from helmsman.schemas.model import Model


def dimensions(model: Model) -> Dimensions:
    """Return the dimensions that every stage of `model` has in common."""
    shape = model.dense
    return {
        "hidden": shape.hidden,
        "heads": shape.heads,
        "kv_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "ffn": shape.ffn,
        "vocab": shape.vocab,
        "norm": shape.norm,
        "norm_eps": shape.norm_eps,
        "activation": shape.activation,
        "gated": shape.gated,
    }


def attending_dimensions(model: Model) -> Dimensions:
    """Return the dimensions of stages that append and attend for `model`, and compute nothing else of it.

    Raises BadInputError for a model whose layers do not have the same attention."""
    attention = common_attention(model)
    return {
        "hidden": model.hidden,
        "heads": attention.heads,
        "kv_heads": attention.kv_heads,
        "head_dim": attention.head_dim,
        "ffn": attention.q_width,
        "vocab": model.vocab,
        "norm": "rms",
        "norm_eps": 0.0,
        "activation": "silu",
        "gated": False,
    }
