"""The part of a pass that one device computes for one batch, as a native stage: weights, caches and dimensions."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from helmsman.executor.cache.kv import CACHED, Caches, Part, kv_format
from helmsman.executor.devices.base import ExecutorDevice
from helmsman.executor.devices.operations import AnyOperation, ExpertMatrices
from helmsman.executor.devices.parts import Buffer
from helmsman.executor.devices.specs import UniformSpec
from helmsman.executor.devices.tensors import Linear, NormVectors, StoredHeads
from helmsman.executor.devices.value_sizes import F32_BYTES
from helmsman.executor.homes.staging import Staging, rows_of
from helmsman.executor.homes.store import WeightLoader
from helmsman.executor.passes.phase_pass import DeviceUse, PhasePass
from helmsman.executor.routing.record import RoutingRecord
from helmsman.executor.routing.slot_room import SlotRooms
from helmsman.executor.stages.block_operations import block_operations
from helmsman.executor.stages.block_part import BlockPart, Rotation, Runs, SlotPart, StageCache
from helmsman.executor.stages.common_operations import (
    embedding,
    head_operation,
    layer_inputs,
    layer_table,
    linear_operation,
    norm_operation,
)
from helmsman.executor.stages.expert_weights import ExpertWeights
from helmsman.executor.stages.layer_inputs import LayerInputRows
from helmsman.executor.stages.limits import check_stages
from helmsman.executor.stages.room import room_of
from helmsman.executor.stages.rope import tables_of
from helmsman.lowering.bodies.experts_apart import COMBINE
from helmsman.lowering.bodies.per_layer_input import LAYER_NORM, LAYER_PROJECTION, LAYER_TABLE
from helmsman.lowering.buffers import chunk_rows
from helmsman.lowering.layer_cache import owner
from helmsman.lowering.operation import DIVIDED
from helmsman.lowering.placement import batches_together
from helmsman.lowering.tensor import POSITIONS
from helmsman.schemas.blocks.feed_forward import PerLayerTable
from helmsman.schemas.blocks.positions import Rope
from helmsman.schemas.formats import size_of
from helmsman.schemas.model import Model
from helmsman.schemas.plan import Plan


@dataclass
class StageBuilder:
    """The values that all stages of a plan share. `divided`: whether attention is three operations, and keys are
    transposed; `lookup`: rows of the token table that are looked up for a pass, where they have no slot; `routing`:
    where routers record what they choose; `slots`: for experts; `sequences`: of which mixers keep states, by default a
    batch's; `layer_inputs`: where a model whose layers have inputs of their own keeps them."""

    plan: Plan
    store: WeightLoader
    caches: Caches
    divided: bool
    lookup: Linear | None = None
    routing: RoutingRecord | None = None
    slots: SlotRooms | None = None
    sequences: int | None = None
    layer_inputs: LayerInputRows | None = None
    _tables: dict[tuple[str, Rope], Rotation] = field(default_factory=dict)
    _constants: dict[tuple[str, Runs], Buffer] = field(default_factory=dict)

    def spec(
        self, phase_pass: PhasePass, staging: Staging, device: ExecutorDevice, batch: int, max_tokens: int
    ) -> UniformSpec:
        """The operations of `phase_pass` on `device`, for passes of up to `max_tokens` per sequence."""
        uses = {(use.op, use.layer): use for use in phase_pass.uses.values() if use.device == device.name}
        part = _Part(self, staging, device, batch, uses, phase_pass)
        model, workload, layers = self.plan.model, self.plan.workload, layers_of(uses)
        paged, apart = self.caches.paged.get(device.memory.name), combines(phase_pass)
        capacity = workload.context if paged is None else paged.cache.window_tokens
        return {
            "hidden": model.hidden,
            "vocab": model.vocab,
            "batch": workload.batch,
            "capacity": capacity,
            "context": workload.context,
            "paged": paged is not None,
            "max_tokens": max_tokens,
            "chunk_rows": chunk_rows(self.divided),
            "last": phase_pass.step_tokens,
            "kv_format": kv_format(self.plan, layers),
            "attention_activations": self.plan.hardware.device(device.name).rounds.attention,
            "room": room_of(model, capacity, self.divided, paged is not None, apart),
            "blocks": len(layers),
            "operations": list(self._operations(part, layers, apart)),
        }

    def _operations(self, part: "_Part", layers: range, apart: bool) -> Iterator[AnyOperation]:
        model = self.plan.model
        check_stages(model)
        table = model.per_layer_table
        if table is not None and part.has(LAYER_TABLE, None):
            yield layer_table(part.table(LAYER_TABLE), part.looked_up(LAYER_TABLE), table.width, part.layer_inputs())
        if part.has("embedding", None):
            looked_up = part.looked_up("embedding")
            yield embedding(part.table("embedding"), looked_up, part.positions(), model.embedding.scale)
        if table is not None and part.has(LAYER_NORM, None):
            yield from _projected_inputs(model, table, part)
        for number, layer in enumerate(layers):
            block = BlockPart(part, number, layer, self.divided, apart, self.plan.workload.context)
            yield from block_operations(model, block)
        norm, head = part.norm("final_norm", None), part.linear("head", None)
        if norm is not None and model.final is not None:
            yield norm_operation("final_norm", None, model.final, norm)
        if head is not None:
            yield head_operation(head, model.head)

    def rotation(self, device: ExecutorDevice, rope: Rope) -> Rotation:
        """The tables of cosines and sines, (context, rotary_dim / 2) each, in the device's memory."""
        key = device.memory.name, rope
        if key not in self._tables:
            cos, sin = tables_of(rope, self.plan.model.max_context, self.plan.workload.context)
            self._tables[key] = (
                device.memory.place(cos, "rotation cosines"),
                device.memory.place(sin, "rotation sines"),
            )
        return self._tables[key]

    def constants(self, device: ExecutorDevice, runs: Runs) -> Buffer:
        """Return values that no checkpoint stores, f32, in the device's memory."""
        import numpy as np

        key = device.memory.name, runs
        if key not in self._constants:
            counts, values = zip(*runs, strict=True)
            vector = np.repeat(np.array(values, np.float32), counts)
            self._constants[key] = device.memory.place(vector, "weights and factors of the description")
        return self._constants[key]


def _projected_inputs(model: Model, table: PerLayerTable, part: "_Part") -> Iterator[AnyOperation]:
    """Yield what projects embeddings to inputs of layers and joins them with rows of their table."""
    shape, matrix = (model.layers * table.width, model.hidden), part.linear(LAYER_PROJECTION, None)
    projection = linear_operation(LAYER_PROJECTION, None, ["hidden"], LAYER_PROJECTION, shape, matrix)
    yield {**projection, "factor": model.hidden**-0.5}
    weights = part.norm(LAYER_NORM, None)
    yield layer_inputs(table.norm, weights, model.layers, table.width, part.layer_inputs())


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
    phase_pass: PhasePass

    def has(self, op: str, layer: int | None) -> bool:
        return (op, layer) in self.uses

    def rotation(self, rope: Rope) -> Rotation:
        return self.builder.rotation(self.device, rope)

    def states(self, op: str, layer: int, width: int) -> Buffer | None:
        if not self.has(op, layer):
            return None
        memory = self.device.memory
        rows = self.builder.sequences or self.builder.plan.workload.batch * (1 + self.phase_pass.drafts)
        return self.builder.caches.state((memory.name, op, layer, self.batch), memory, rows, width)

    def snapshots(self) -> int:
        return self.phase_pass.step_tokens - 1

    def tiled(self) -> bool:
        return self.builder.store.tiled

    def constants(self, runs: Runs) -> Buffer:
        return self.builder.constants(self.device, runs)

    def block_scale(self, layer: int) -> Buffer | None:
        """Return what multiplies a whole block, which is no operation's own."""
        tensor = self.builder.store.find("block_scale.weight", layer)
        return None if tensor is None else self.builder.store.vector(tensor, self.device.memory.name)

    def cache(self, layer: int) -> StageCache:
        """Return the cache that a layer reads, its own or an earlier one's; empty where none of its operations on this
        device read or write it."""
        if not any(self.has(op, layer) for op in CACHED):
            return StageCache(None, None, [], [])
        home = owner(self.builder.plan.model, layer)
        cache = self.builder.caches.at(self.device.memory.name, home, self.batch)
        read, kept = cache.read, cache.kept
        return StageCache(
            _read(read["keys"]),
            _read(read["values"]),
            self._kept(kept["keys"]),
            self._kept(kept["values"]),
            cache.rows,
        )

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

    def norm(self, op: str, layer: int | None) -> NormVectors | None:
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

    def experts(self, op: str, layer: int) -> ExpertMatrices | None:
        """Return the matrices of its experts, or of its slots."""
        use = self.uses.get((op, layer))
        if use is None:
            return None
        store, weights = self.builder.store, ExpertWeights(self.builder.store, self.staging, self.device.memory.name)
        tensor, bias = store.tensor(f"{op}.weight", layer), store.find(f"{op}.bias", layer)
        slots, arriving = self.slots(layer), weights.coming(use, tensor)
        if slots is None:
            matrices, fmt = weights.matrices(use, tensor)
        else:
            matrices, fmt = [*slots.room.matrices[op].slots], slots.room.matrices[op].format
            arriving = range(len(matrices))
        return {
            "weights": matrices,
            "format": fmt,
            "bias": None if bias is None else weights.biases(use, bias),
            "activations": self.builder.plan.hardware.device(self.device.name).rounds.of_experts(fmt),
            "panels": (arriving.start, arriving.stop),
        }

    def slots(self, layer: int) -> SlotPart | None:
        """Return the slots of a block, on the device in whose memory they are."""
        rooms, mode = self.builder.slots, self.phase_pass.slotted.get(layer)
        if rooms is None or mode is None or not self.has("experts_up", layer):
            return None
        room = rooms.room(layer)
        here = room.rule.memory == self.device.memory.name
        turns = mode != "host" and room.rule.slots < room.experts
        return SlotPart(room, turns) if here else None

    def own_experts(self, layer: int) -> tuple[int, int] | None:
        """Return the experts of its rules."""
        use = self.uses.get(("experts_down", layer))
        return None if use is None else (use.start, use.stop)

    def recorded_choices(self, layer: int) -> Buffer | None:
        """Return where a router records what it chooses."""
        record = self.builder.routing
        if record is None or not self.has("router", layer):
            return None
        return record.room(layer, self.batch, self.device.memory)

    def vector(self, op: str, name: str, layer: int) -> Buffer | None:
        """Return what an operation stores beside its matrix."""
        use = self.uses.get((op, layer))
        return None if use is None else self._vector(use, f"{name}.weight")

    def table(self, op: str) -> Linear:
        """The table of a lookup, packed like a linear layer, or the rows of it that have been looked up for the
        batch."""
        if op == "embedding" and self.builder.lookup is not None:
            return self.builder.lookup
        use, tensor = self.uses[op, None], self.builder.store.tensor(f"{op}.weight", None)
        (rows, columns), slot = tensor.shape, self.staging.slot(use, tensor)
        if slot is None:
            weight, fmt = self.builder.store.here(tensor, range(rows), self.device.memory.name)
        else:
            size = slot.ready.size // batches_together(self.builder.plan)
            weight, fmt = slot.ready.buffer.part(slot.ready.offset + self.batch * size, size), slot.format
            rows = size // size_of(columns, fmt)
        return {"weight": weight, "format": fmt, "rows": rows, "columns": columns, "bias": None, "first": 0}

    def looked_up(self, op: str) -> bool:
        """Whether rows of tokens have been found in the table of a lookup before they come to the device."""
        if op == "embedding" and self.builder.lookup is not None:
            return True
        return self.staging.slot(self.uses[op, None], self.builder.store.tensor(f"{op}.weight", None)) is not None

    def layer_inputs(self) -> Buffer:
        assert self.builder.layer_inputs is not None, "a model whose layers have inputs"
        return self.builder.layer_inputs.at(self.device.memory, self.batch)

    def positions(self) -> Buffer | None:
        """f32 (context, hidden): the learned positions of tokens 0, 1, ..."""
        tensor = self.builder.store.find(POSITIONS, None)
        slot = None if tensor is None else self.staging.slot(self.uses["embedding", None], tensor)
        if slot is not None:
            return slot.ready.buffer.part(slot.ready.offset, slot.ready.size)
        return None if tensor is None else self.builder.store.positions(self.device.memory.name)

    def heads(self, op: str, layer: int) -> tuple[int, int] | None:
        """Return the KV heads that divided attention computes here."""
        use = self.uses.get((op, layer))
        return None if use is None else (use.start, use.stop)

    def head_norm(self, op: str, name: str, layer: int) -> NormVectors | None:
        """Return the QK norm of queries or keys."""
        use = self.uses.get((op, layer))
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
        if len(rows) == tensor.shape[0]:
            return whole
        return whole.part(F32_BYTES * rows.start, F32_BYTES * len(rows))


def _read(part: Part) -> list[tuple[int, int, Buffer]]:
    """Buffers of several blocks first, so that what lives here counts where both hold a head."""
    result = {(heads.room.start, heads.room.stop, heads.buffer): len(heads.room) for heads in part}
    return sorted(result, key=lambda key: result[key], reverse=True)


def combines(phase_pass: PhasePass) -> bool:
    """Whether experts of any block are computed elsewhere than their router."""
    return any(task.op == COMBINE for task in phase_pass.tasks)


def divides(passes: tuple[PhasePass, ...]) -> bool:
    """Whether any pass has attention in its parts."""
    return any(task.kind in DIVIDED for one_pass in passes for task in one_pass.tasks)
