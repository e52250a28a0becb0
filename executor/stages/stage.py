"""The part of a pass that one device computes for one batch, as a native stage: weights, caches and dimensions."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from helmsman.executor.cache.kv import CACHED, Caches, Part, kv_format
from helmsman.executor.devices.base import ExecutorDevice
from helmsman.executor.devices.parts import Buffer
from helmsman.executor.devices.specs import Block, Linear, Norm, StoredHeads, UniformSpec
from helmsman.executor.devices.value_sizes import F32_BYTES
from helmsman.executor.homes.staging import Staging, rows_of
from helmsman.executor.homes.store import WeightLoader
from helmsman.executor.passes.phase_pass import DeviceUse, PhasePass
from helmsman.executor.stages.dimensions import dimensions
from helmsman.lowering.ops import DIVIDED
from helmsman.lowering.placement import batches_together
from helmsman.lowering.tensors import POSITIONS
from helmsman.schemas.formats import size_of
from helmsman.schemas.model import Rope
from helmsman.schemas.plan import Plan

RopeTables = tuple[NDArray[np.float32], NDArray[np.float32]]


@dataclass
class StageBuilder:
    """The values that all stages of a plan share. `divided`: whether attention is three operations, and keys are
    transposed; `lookup`: rows of the token table that are looked up for a pass, where they have no slot."""

    plan: Plan
    store: WeightLoader
    caches: Caches
    rope: RopeTables | None
    divided: bool
    lookup: Linear | None = None
    _tables: dict[str, tuple[Buffer, Buffer]] = field(default_factory=dict)

    def spec(
        self, phase_pass: PhasePass, staging: Staging, device: ExecutorDevice, batch: int, max_tokens: int
    ) -> UniformSpec:
        """The operations of `phase_pass` on `device`, for passes of up to `max_tokens` per sequence."""
        uses = {(use.op, use.layer): use for use in phase_pass.uses.values() if use.device == device.name}
        part = _Part(self, staging, device, batch, uses)
        model, workload, layers = self.plan.model, self.plan.workload, layers_of(uses)
        paged = self.caches.paged.get(device.memory.name)
        cos, sin = self._rotation(device) if any(op == "append" for op, _ in uses) else (None, None)
        return {
            **dimensions(model),
            "attention": "divided" if self.divided else "fused",
            "attention_activations": self.plan.hardware.device(device.name).rounds.attention,
            "batch": workload.batch,
            "capacity": workload.context if paged is None else paged.cache.window_tokens,
            "context": workload.context,
            "paged": paged is not None,
            "max_tokens": max_tokens,
            "kv_format": kv_format(self.plan, layers),
            "rotary_dim": model.position.rotary_dim if isinstance(model.position, Rope) and cos is not None else 0,
            "cos": cos,
            "sin": sin,
            "embedding": part.table() if part.has("embedding", None) else None,
            "looked_up": part.looked_up(),
            "positions": part.positions() if part.has("embedding", None) else None,
            "blocks": [part.block(layer) for layer in layers],
            "final_norm": part.norm("final_norm", None),
            "head": part.linear("head", None),
        }

    def _rotation(self, device: ExecutorDevice) -> tuple[Buffer | None, Buffer | None]:
        """The tables of cosines and sines, (context, rotary_dim / 2) each, in the device's memory."""
        if self.rope is None:
            return None, None
        if device.memory.name not in self._tables:
            cos, sin = self.rope
            self._tables[device.memory.name] = (
                device.memory.place(cos, "rotation cosines"),
                device.memory.place(sin, "rotation sines"),
            )
        return self._tables[device.memory.name]


def layers_of(uses: dict[tuple[str, int | None], DeviceUse]) -> range:
    """From the first block in which a device does something to the last."""
    layers = [layer for _, layer in uses if layer is not None]
    return range(min(layers), max(layers) + 1) if layers else range(0)


@dataclass(frozen=True)
class _Part:
    """The operations of one device, and where it finds what they read."""

    builder: StageBuilder
    staging: Staging
    device: ExecutorDevice
    batch: int
    uses: dict[tuple[str, int | None], DeviceUse]

    def has(self, op: str, layer: int | None) -> bool:
        return (op, layer) in self.uses

    def block(self, layer: int) -> Block:
        model = self.builder.plan.model
        cached = any(self.has(op, layer) for op in CACHED)
        cache = self.builder.caches.at(self.device.memory.name, layer, self.batch) if cached else None
        return {
            "norm1": self.norm("norm1", layer),
            "q": self.linear("q", layer),
            "k": self.linear("k", layer),
            "v": self.linear("v", layer),
            "q_norm": self._head_norm("q_norm", layer) if model.qk_norm else None,
            "k_norm": self._head_norm("k_norm", layer) if model.qk_norm else None,
            "o": self.linear("o", layer),
            "norm2": self.norm("norm2", layer),
            "gate": self.linear("gate", layer),
            "up": self.linear("up", layer),
            "down": self.linear("down", layer),
            "keys": None if cache is None else _read(cache.read["keys"]),
            "values": None if cache is None else _read(cache.read["values"]),
            "kept_keys": [] if cache is None else self._kept(cache.kept["keys"]),
            "kept_values": [] if cache is None else self._kept(cache.kept["values"]),
            "scores_heads": self._heads("scores", layer),
            "wv_heads": self._heads("wv", layer),
        }

    def _kept(self, part: Part) -> list[StoredHeads]:
        tokens = self.builder.caches.by_tokens
        return [
            {
                "heads": (heads.start, heads.stop),
                "rows": heads.buffer,
                "groups": heads.format == "q4",
                "by_token": tokens,
            }
            for heads in part
        ]

    def norm(self, op: str, layer: int | None) -> Norm | None:
        """Scale and, for layer norms, shift in f32."""
        use = self.uses.get((op, layer))
        weight = None if use is None else self._vector(use, f"{op}.weight")
        if use is None or weight is None:
            return None
        return {"weight": weight, "bias": self._vector(use, f"{op}.bias")}

    def linear(self, op: str, layer: int | None) -> Linear | None:
        """The rows of a linear layer that the device computes."""
        use = self.uses.get((op, layer))
        if use is None:
            return None
        tensor = self.builder.store.tensor(f"{op}.weight", layer)
        rows, slot = rows_of(use, tensor), self.staging.slot(use, tensor)
        if slot is None:
            weight, fmt = self.builder.store.here(tensor, rows, self.device.memory.name)
        else:
            weight, fmt = slot.ready.buffer.part(slot.ready.offset, slot.ready.size), slot.format
        return {
            "weight": weight,
            "format": fmt,
            "rows": len(rows),
            "columns": tensor.shape[1],
            "bias": self._vector(use, f"{op}.bias"),
            "first": rows.start,
            "panels": slot is not None,
            "activations": self.builder.plan.hardware.device(self.device.name).rounds.of(fmt),
        }

    def table(self) -> Linear:
        """The token table, packed like a linear layer, or the rows of it that have been looked up for the batch."""
        if self.builder.lookup is not None:
            return self.builder.lookup
        use, tensor = self.uses["embedding", None], self.builder.store.tensor("embedding.weight", None)
        (rows, columns), slot = tensor.shape, self.staging.slot(use, tensor)
        if slot is None:
            weight, fmt = self.builder.store.here(tensor, range(rows), self.device.memory.name)
        else:
            size = slot.ready.size // batches_together(self.builder.plan)
            weight, fmt = slot.ready.buffer.part(slot.ready.offset + self.batch * size, size), slot.format
            rows = size // size_of(columns, fmt)
        return {"weight": weight, "format": fmt, "rows": rows, "columns": columns, "bias": None, "first": 0}

    def looked_up(self) -> bool:
        """Whether rows of tokens have been found in the table before they come to the device."""
        tensor = self.builder.store.tensor("embedding.weight", None)
        if not self.has("embedding", None):
            return False
        return self.builder.lookup is not None or self.staging.slot(self.uses["embedding", None], tensor) is not None

    def positions(self) -> Buffer | None:
        """f32 (context, hidden): the learned positions of tokens 0, 1, ..."""
        tensor = self.builder.store.find(POSITIONS, None)
        slot = None if tensor is None else self.staging.slot(self.uses["embedding", None], tensor)
        if slot is not None:
            return slot.ready.buffer.part(slot.ready.offset, slot.ready.size)
        return None if tensor is None else self.builder.store.positions(self.device.memory.name)

    def _heads(self, op: str, layer: int) -> tuple[int, int] | None:
        use = self.uses.get((op, layer))
        return None if use is None else (use.start, use.stop)

    def _head_norm(self, name: str, layer: int) -> Norm | None:
        use = self.uses.get(("append", layer))
        weight = None if use is None else self._vector(use, f"{name}.weight")
        return None if weight is None else {"weight": weight, "bias": None}

    def _vector(self, use: DeviceUse, name: str) -> Buffer | None:
        """f32, the rows of a use; None when the model has no such tensor."""
        tensor = self.builder.store.find(name, use.layer)
        if tensor is None:
            return None
        slot = self.staging.slot(use, tensor)
        if slot is not None:
            return slot.ready.buffer.part(slot.ready.offset, slot.ready.size)
        rows = rows_of(use, tensor)
        whole = self.builder.store.vector(tensor, self.device.memory.name)
        return whole.part(F32_BYTES * rows.start, F32_BYTES * len(rows))


def _read(part: Part) -> list[tuple[int, int, Buffer]]:
    """Buffers of several blocks first, so that what lives here counts where both hold a head."""
    result = {(heads.room.start, heads.room.stop, heads.buffer): len(heads.room) for heads in part}
    return sorted(result, key=lambda key: result[key], reverse=True)


def divides(passes: tuple[PhasePass, ...]) -> bool:
    """Whether any pass has attention in its parts."""
    return any(task.kind in DIVIDED for one_pass in passes for task in one_pass.tasks)
