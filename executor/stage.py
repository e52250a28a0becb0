"""One part of a plan as one native stage: its weights placed, its caches allocated, its shape stated."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from helmsman.executor.devices.base import Device, RunnableStage
from helmsman.executor.kv import allocate_cache, kv_format
from helmsman.executor.partition import Part
from helmsman.executor.placing import Placer
from helmsman.schemas.model import LearnedPositions, Rope
from helmsman.schemas.plan import Plan

if TYPE_CHECKING:
    from helmsman.executor._kernels import Block, Buffer, StageSpec

RopeTables = tuple[NDArray[np.float32], NDArray[np.float32]]


@dataclass(frozen=True)
class StageBuilder:
    """What all stages of a plan share; `max_tokens`: most tokens per sequence in one pass."""

    plan: Plan
    rope: RopeTables | None
    max_tokens: int

    def build(self, part: Part, device: Device, placer: Placer) -> RunnableStage:
        """The stage that runs `part` on `device`."""
        return device.stage(self._spec(part, device, placer), part.blocks.start)

    def _spec(self, part: Part, device: Device, placer: Placer) -> "StageSpec":
        model, workload = self.plan.model, self.plan.workload
        position = model.position
        cos, sin = self._rotation(device) if part.blocks else (None, None)
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
            "batch": workload.batch,
            "capacity": workload.context,
            "max_tokens": self.max_tokens,
            "kv_format": kv_format(self.plan, part),
            "rotary_dim": position.rotary_dim if isinstance(position, Rope) and cos is not None else 0,
            "cos": cos,
            "sin": sin,
            "embedding": placer.linear("embedding") if part.embeds else None,
            "positions": self._positions(placer) if part.embeds else None,
            "blocks": [self._block(layer, device, placer) for layer in part.blocks],
            "final_norm": placer.norm("final_norm") if part.heads else None,
            "head": placer.linear("head") if part.heads else None,
        }

    def _block(self, layer: int, device: Device, placer: Placer) -> "Block":
        model = self.plan.model
        keys, values = allocate_cache(self.plan, layer, device.memory)
        return {
            "norm1": placer.norm("norm1", layer),
            "q": placer.linear("q", layer),
            "k": placer.linear("k", layer),
            "v": placer.linear("v", layer),
            "q_norm": placer.norm("q_norm", layer) if model.qk_norm else None,
            "k_norm": placer.norm("k_norm", layer) if model.qk_norm else None,
            "o": placer.linear("o", layer),
            "norm2": placer.norm("norm2", layer),
            "gate": placer.linear("gate", layer) if model.gated else None,
            "up": placer.linear("up", layer),
            "down": placer.linear("down", layer),
            "keys": keys,
            "values": values,
        }

    def _rotation(self, device: Device) -> "tuple[Buffer | None, Buffer | None]":
        """The tables of cosines and sines, (context, rotary_dim / 2) each, in the device's memory."""
        if self.rope is None:
            return None, None
        cos, sin = self.rope
        return device.memory.place(cos, "rotation cosines"), device.memory.place(sin, "rotation sines")

    def _positions(self, placer: Placer) -> "Buffer | None":
        position = self.plan.model.position
        if not isinstance(position, LearnedPositions):
            return None
        return placer.positions(position.offset, self.plan.workload.context)
