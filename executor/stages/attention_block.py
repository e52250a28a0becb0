"""A layer of a stage that only appends and attends: rows come normed and rotated."""

from helmsman.executor.devices.parts import Buffer
from helmsman.executor.stages.dense import DenseBlock


def attending_block(keys: Buffer, values: Buffer) -> DenseBlock:
    """With these caches, and nothing that other operations need."""
    return {
        "norm1": None,
        "q": None,
        "k": None,
        "v": None,
        "q_norm": None,
        "k_norm": None,
        "o": None,
        "norm2": None,
        "gate": None,
        "up": None,
        "down": None,
        "keys": keys,
        "values": values,
    }
