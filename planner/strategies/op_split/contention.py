"""For how long a layer keeps each memory and each link at work: what no overlap of lanes can hide (PARK-43).

The simulator shares the bandwidth of a physical memory among all that draw on it, so a layer takes at least the
seconds that one of them must work. Where one lane alone draws on a memory, that lane takes as long."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from helmsman.planner.strategies.op_split.pipeline import Seconds

_LANES = (
    ("host",),
    ("accelerator",),
    ("weights", "cache", "weights_q", "cache_q", "staged"),
    ("decompress_weights", "decompress_cache"),
    ("storage",),
)
"""Columns of a layer's table by the lane they are about."""


@dataclass(frozen=True, slots=True, eq=False)
class SharedPool:
    """A memory or link: the seconds that it works for every unit, by column of the layer's table; and for every byte
    of activations that crosses to the accelerator (`into`) and `back`."""

    name: str
    columns: Mapping[str, Seconds]
    into: float
    back: float

    @property
    def lanes(self) -> int:
        """How many lanes draw on it."""
        amounts = [max(float(np.sum(self.columns[column])) for column in lane) for lane in _LANES]
        return sum(amount > 0 for amount in (*amounts, self.into, self.back))
