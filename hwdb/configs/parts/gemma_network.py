"""Reads the gated network of Gemma 2, 3 and 4."""

from helmsman.hwdb.config_fields import Fields
from helmsman.hwdb.configs.parts.dimensions import activation
from helmsman.schemas.blocks.feed_forward import FeedForward
from helmsman.schemas.dense_model import DenseActivation


def gemma_activation(fields: Fields) -> DenseActivation:
    """Return the function of its networks: hidden_activation wins over hidden_act, which classes do not read."""
    fields.read.add("hidden_act")
    return activation(fields, "hidden_activation", "gelu_pytorch_tanh")


def gemma_network(fields: Fields, width: int) -> FeedForward:
    """Return a gated network of a width."""
    return FeedForward(width=width, activation=gemma_activation(fields), gated=True)
