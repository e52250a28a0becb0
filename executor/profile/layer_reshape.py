"""What it costs to turn a cache kept (batch, tokens, width) at every step: the layout that PARK-15 does away with."""

import time

import numpy as np

from helmsman.executor.devices.memory import view
from helmsman.executor.profile.layer import Layers
from helmsman.executor.profile.layer_traffic import LayerTraffic
from helmsman.schemas.formats import size_of

ROUNDS = 5

Sides = dict[str, list[float]]
"""Seconds while the link is `idle`, and while it is `busy`."""


def measure_reshape(layers: Layers, traffic: LayerTraffic) -> Sides:
    """Turn the keys of a layer into (batch, heads, head_dim, tokens), by one thread, as a copy of them."""
    question, model = layers.question, layers.question.model
    shape = question.batch, question.context, model.kv_heads, model.head_dim
    dtype = np.dtype(f"u{size_of(1, question.kv_format)}")
    target = np.zeros((shape[0], shape[2], shape[3], shape[1]), dtype)
    found: Sides = {"idle": [], "busy": []}

    def turn(number: int) -> float:
        keys = view(layers.blocks[number % layers.count]["keys"], dtype)
        began = time.monotonic()
        target[:] = keys[: target.size].reshape(shape).transpose(0, 2, 3, 1)
        return time.monotonic() - began

    for number in range(ROUNDS):
        found["idle"].append(turn(2 * number))
        with traffic.flowing():
            found["busy"].append(turn(2 * number + 1))
    return found
