"""Tiny models with routed experts: transformers' own, written as a checkpoint, and the same as a stage."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from helmsman.executor._kernels import Arena, Buffer, Pool, Stage, pack, packed_size
from helmsman.executor.devices.operations import ExpertMatrices
from helmsman.executor.devices.specs import UniformSpec
from helmsman.executor.devices.tensors import Linear, NormVectors
from helmsman.executor.devices.torch.buffers import TorchMemory
from helmsman.executor.stages.block_operations import block_operations
from helmsman.executor.stages.block_part import BlockPart, Rotation, Runs, SlotPart, StageCache
from helmsman.executor.stages.common_operations import embedding, head_operation, norm_operation
from helmsman.executor.stages.room import room_of
from helmsman.executor.stages.rope import tables_of
from helmsman.executor.weights.checkpoint import Checkpoint
from helmsman.executor.weights.opening import Weights
from helmsman.hwdb.load_model import load_model
from helmsman.lowering.tensors import tensors
from helmsman.schemas.blocks.positions import Rope
from helmsman.schemas.formats import StoredFormat
from helmsman.schemas.model import Model

CAPACITY = 96
COMMON = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "qwen3_moe": {"head_dim": 32, "intermediate_size": 96, "moe_intermediate_size": 32, "num_experts": 8,
                  "num_experts_per_tok": 3, "norm_topk_prob": True},
    "mixtral": {"intermediate_size": 64, "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None},
    "olmoe": {"intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 4, "num_key_value_heads": 4,
              "norm_topk_prob": False},
}  # fmt: skip


def written(family: str, directory: Path, **changes: Any) -> Any:
    """Write a random model of a family, with a router whose choices are spread; return transformers' own."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(family, **{**COMMON, **FAMILIES[family], **changes}, dtype="float32")
    torch.manual_seed(3)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.normal_(0, 0.3 if value.dim() > 1 else 0.1).add_(float(value.dim() == 1))
            if name.endswith("gate.weight"):
                value.mul_(2.0)
        for name, value in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                value.normal_(0, 0.2)
    model.save_pretrained(directory)
    return model


def packed_in(arena: Arena, values: NDArray[np.float32], fmt: StoredFormat) -> Buffer:
    """Return a packed matrix."""
    buffer = arena.alloc(packed_size(fmt, *values.shape), "matrix")
    pack(np.ascontiguousarray(values), "f32", buffer, fmt, *values.shape)
    return buffer


@dataclass
class Told:
    """A part of a plan with all operations of a model, whose weights are of a checkpoint, all in one format."""

    model: Model
    checkpoint: Weights
    fmt: StoredFormat
    arena: Arena

    def __post_init__(self) -> None:
        self._tensors = {(tensor.name, tensor.layer): tensor for tensor in tensors(self.model)}

    def has(self, op: str, layer: int | None) -> bool:
        """Whether it computes an operation: every one."""
        return True

    def values(self, name: str, layer: int | None) -> NDArray[np.float32] | None:
        """f32 of the checkpoint."""
        tensor = self._tensors.get((name, layer))
        return None if tensor is None else np.asarray(self.checkpoint.tensor(tensor)[1], np.float32)

    def vector(self, op: str, name: str, layer: int | None) -> Buffer | None:
        """Return a vector."""
        values = self.values(f"{name}.weight", layer)
        return None if values is None else self.kept(values)

    def kept(self, values: NDArray[np.float32]) -> Any:
        """Return values in memory."""
        return np.ascontiguousarray(values, np.float32)

    def norm(self, op: str, layer: int | None) -> NormVectors | None:
        """Return scale and shift."""
        weight = self.vector(op, op, layer)
        return None if weight is None else {"weight": weight, "bias": None}

    def head_norm(self, op: str, name: str, layer: int) -> NormVectors | None:
        """Return a QK norm."""
        return self.norm(name, layer)

    def linear(self, op: str, layer: int | None) -> Linear | None:
        """Return a matrix, packed; a router's in f32."""
        tensor = self._tensors[f"{op}.weight", layer]
        values = self.values(f"{op}.weight", layer)
        assert values is not None
        return self.matrix(values, "f32" if tensor.exact else self.fmt)

    def matrix(self, values: NDArray[np.float32], fmt: StoredFormat) -> Linear:
        """Return a matrix in a format."""
        rows, columns = values.shape
        return {"weight": self.packed(values, fmt), "format": fmt, "rows": rows, "columns": columns, "bias": None}

    def packed(self, values: NDArray[np.float32], fmt: StoredFormat) -> Any:
        """Return packed panels."""
        return packed_in(self.arena, values, fmt)

    def own_experts(self, layer: int) -> tuple[int, int] | None:
        """Return which experts it computes: all."""
        return None

    def slots(self, layer: int) -> SlotPart | None:
        """Return slots for experts: none."""
        return None

    def recorded_choices(self, layer: int) -> Buffer | None:
        """Return where choices are recorded: nowhere."""
        return None

    def constants(self, runs: Runs) -> Buffer:
        """Return values of the description."""
        kept: Buffer = self.kept(np.concatenate([np.full(count, value, np.float32) for count, value in runs]))
        return kept

    def experts(self, op: str, layer: int) -> ExpertMatrices | None:
        """Return the matrices of all experts."""
        tensor, values = self._tensors[f"{op}.weight", layer], self.values(f"{op}.weight", layer)
        assert values is not None
        each = values.reshape(tensor.shape)
        weights = [self.packed(matrix, self.fmt) for matrix in each]
        return {"weights": weights, "format": self.fmt, "bias": None, "activations": "int16"}

    def heads(self, op: str, layer: int) -> tuple[int, int] | None:
        """Return all heads."""
        return None

    def cache(self, layer: int) -> StageCache:
        """Return a cache of f32."""
        attention = self.model.attention(layer)
        assert attention is not None
        size = 4 * CAPACITY * attention.k_width
        return StageCache(self.room(size), self.room(size), [], [])

    def room(self, size: int) -> Any:
        """Return memory."""
        return self.arena.alloc(size, "cache")

    def rotation(self, rope: Rope) -> Rotation:
        """Return tables of angles."""
        cos, sin = tables_of(rope, self.model.max_context, CAPACITY)
        return self.kept(cos), self.kept(sin)

    def spec(self) -> UniformSpec:
        """Return the whole model as a stage."""
        model, layers = self.model, range(self.model.layers)
        blocks = [op for layer in layers for op in block_operations(model, BlockPart(self, layer, layer, False))]
        table, norm, head = self.linear("embedding", None), self.norm("final_norm", None), self.linear("head", None)
        assert table is not None and head is not None and model.final is not None
        ends = norm_operation("final_norm", None, model.final, norm), head_operation(head, model.head)
        return {
            "hidden": model.hidden,
            "vocab": model.vocab,
            "batch": 1,
            "capacity": CAPACITY,
            "max_tokens": CAPACITY,
            "kv_format": "f32",
            "paged": False,
            "attention_activations": "f32",
            "room": room_of(model, CAPACITY, divided=False, paged=False),
            "blocks": len(layers),
            "operations": [embedding(table, False, None, model.embedding.scale), *blocks, *ends],
        }


class OnTorch(Told):
    """The same in memory of a PyTorch device."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.memory = TorchMemory("vram", 1 << 26, torch.device("cpu"))

    def kept(self, values: NDArray[np.float32]) -> Any:
        return self.memory.place(np.ascontiguousarray(values, np.float32), "values")

    def packed(self, values: NDArray[np.float32], fmt: StoredFormat) -> Any:
        return self.memory.keep(np.ascontiguousarray(values), "f32", fmt, values.shape[1], "matrix")

    def room(self, size: int) -> Any:
        return self.memory.alloc(size, "cache")


def opened(directory: Path, fmt: StoredFormat, kind: type[Told] = Told, arena: int = 64 << 20) -> Told:
    """Return the model of a checkpoint, in memory of so many bytes."""
    model = load_model(str(directory / "config.json"))
    return kind(model, Checkpoint.open(directory, model), fmt, Arena(arena))


class Native:
    """A model as a stage of a pool."""

    def __init__(self, told: Told, pool: Pool) -> None:
        spec = told.spec()
        self.arena = told.arena
        self.stage = Stage(pool, spec, self.arena.alloc(Stage.workspace_size(spec), "workspace"), 0)
        self._kept = spec

    def run(self, ids: list[int], past: int) -> NDArray[np.float32]:
        """Return the logits after some tokens."""
        source, target = self.arena.alloc(4 * len(ids), "ids"), self.arena.alloc(64, "chosen")
        np.frombuffer(memoryview(source), np.int32)[: len(ids)] = ids
        stamps = np.zeros(len(self.stage.ops) + 1)
        self.stage.run(source, target, len(ids), past, stamps)
        return np.array(self.stage.logits())[0]
