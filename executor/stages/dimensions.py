"""A model's dimensions as the native stage takes them."""

from helmsman.executor.stages.dense import Dimensions
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
