"""A model's dimensions as the native stage takes them."""

from helmsman.executor.devices.specs import Dimensions
from helmsman.schemas.model import Model


def dimensions(model: Model) -> Dimensions:
    """Return the dimensions that every stage of `model` has in common."""
    return {
        "hidden": model.hidden,
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "head_dim": model.head_dim,
        "ffn": model.ffn,
        "vocab": model.vocab,
        "norm": model.norm,
        "norm_eps": model.norm_eps,
        "activation": model.activation,
        "gated": model.gated,
    }
