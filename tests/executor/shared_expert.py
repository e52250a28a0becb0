"""A block of one norm, experts and a shared network with a gate of one row, as stages and as a formula."""

from typing import Any

import numpy as np
import torch
from expert_models import packed_in
from numpy.typing import NDArray

from helmsman.executor._kernels import Arena, Buffer, Pool, Stage
from helmsman.executor.devices.specs import UniformSpec
from helmsman.executor.devices.torch.buffers import TorchMemory
from helmsman.executor.devices.torch.regions import regions_of
from helmsman.executor.devices.torch.stage import TorchStage
from helmsman.executor.stages.block_part import BlockPart, SlotPart
from helmsman.executor.stages.common_operations import norm_operation
from helmsman.executor.stages.expert_operations import expert_operations
from helmsman.schemas.blocks.feed_forward import Experts, FeedForward, Router
from helmsman.schemas.blocks.norms import Norm

HIDDEN, WIDTH, SHARED, EXPERTS, CHOSEN = 48, 32, 64, 6, 2
BODY = Experts(
    experts=EXPERTS,
    chosen=CHOSEN,
    width=WIDTH,
    activation="silu",
    router=Router(score="sigmoid", correction=True, normalised=True, scaling=1.5),
    shared=FeedForward(width=SHARED, activation="silu", gated=True),
    shared_gate=True,
)
EPS = 1e-6
Floats = NDArray[np.float32]


def silu(x: Any) -> Any:
    """Return x * sigmoid(x)."""
    return x / (1 + np.exp(-x))


class SharedValues:
    """Random matrices; `part` protocol: whatever an operation asks for."""

    def __init__(self) -> None:
        rng = np.random.default_rng(4)
        shapes = {
            "router": (EXPERTS, HIDDEN),
            "shared_gate": (SHARED, HIDDEN),
            "shared_up": (SHARED, HIDDEN),
            "shared_down": (HIDDEN, SHARED),
            "shared_scale": (1, HIDDEN),
            "experts_gate": (EXPERTS, WIDTH, HIDDEN),
            "experts_up": (EXPERTS, WIDTH, HIDDEN),
            "experts_down": (EXPERTS, HIDDEN, WIDTH),
        }
        self.values = {name: rng.standard_normal(shape).astype(np.float32) * 0.2 for name, shape in shapes.items()}
        self.correction = rng.standard_normal(EXPERTS).astype(np.float32)
        self.arena, self.memory = Arena(1 << 22), TorchMemory("vram", 1 << 22, torch.device("cpu"))
        self.torch = False

    def kept(self, values: Floats) -> Any:
        """Return a vector where the stage is."""
        return self.memory.place(values, "vector") if self.torch else values

    def matrix(self, values: Floats) -> Any:
        """Return a packed matrix."""
        if self.torch:
            return self.memory.keep(values, "f32", "f32", values.shape[1], "matrix")
        return packed_in(self.arena, values, "f32")

    def has(self, op: str, layer: int | None) -> bool:
        """Whether it computes an operation: all of the block."""
        return True

    def linear(self, op: str, layer: int | None) -> Any:
        """Return a matrix of an operation."""
        rows, columns = self.values[op].shape
        matrix = self.matrix(self.values[op])
        return {"weight": matrix, "format": "f32", "rows": rows, "columns": columns, "bias": None}

    def own_experts(self, layer: int) -> tuple[int, int] | None:
        """Return which experts it computes: all."""
        return None

    def slots(self, layer: int) -> SlotPart | None:
        """Return slots for experts: none."""
        return None

    def recorded_choices(self, layer: int) -> Buffer | None:
        """Return where choices are recorded: nowhere."""
        return None

    def experts(self, op: str, layer: int) -> Any:
        """Return matrices of experts."""
        weights = [self.matrix(np.ascontiguousarray(each)) for each in self.values[op]]
        return {"weights": weights, "format": "f32", "bias": None, "activations": "int16"}

    def vector(self, op: str, name: str, layer: int) -> Any:
        """Return the correction."""
        return self.kept(self.correction)

    def spec(self) -> UniformSpec:
        """Return the block as a stage."""
        norm: Any = {"weight": self.kept(np.ones(HIDDEN, np.float32)), "bias": None}
        part: Any = self
        made: Any = [norm_operation("norm2", 0, Norm(eps=EPS), norm)]
        made += expert_operations(HIDDEN, BODY, BlockPart(part, 0, 0, False))
        room: Any = dict.fromkeys(("wide", "inner", "columns", "heads", "scores"), 0)
        return {
            "hidden": HIDDEN, "vocab": 8, "batch": 1, "capacity": 16, "max_tokens": 16, "kv_format": "f32",
            "paged": False, "attention_activations": "f32", "room": room, "blocks": 1, "operations": made,
        }  # fmt: skip

    def native(self, pool: Pool, x: Floats) -> Floats:
        """Return what the native stage makes of hidden states."""
        self.torch = False
        spec = self.spec()
        stage = Stage(pool, spec, self.arena.alloc(Stage.workspace_size(spec), "workspace"), 0)
        source = self.arena.alloc(x.nbytes, "states")
        values = np.frombuffer(memoryview(source), np.float32)
        values[: x.size] = x.ravel()
        stage.run(source, source, len(x), 0, np.zeros(len(stage.ops) + 1))
        return values[: x.size].reshape(x.shape).copy()

    def on_torch(self, x: Floats) -> Floats:
        """Return what the PyTorch stage makes of them."""
        self.torch = True
        spec = self.spec()
        stage = TorchStage(spec, self.memory.alloc(regions_of(spec).size, "workspace"), 0)
        stage.hidden(len(x)).copy_(torch.from_numpy(x).unsqueeze(0))
        stage.compute(0, len(stage.ops), len(x), 0, ends=True)
        return stage.hidden(len(x))[0].numpy().copy()

    def outcome(self, x: Floats) -> Any:
        """Return the formula, in f64."""
        v = {name: value.astype(np.float64) for name, value in self.values.items()}
        normed = x / np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True) + EPS)
        scores = 1 / (1 + np.exp(-normed @ v["router"].T))
        out = x.astype(np.float64)
        for row, n in enumerate(normed):
            chosen = np.argsort(-(scores[row] + self.correction))[:CHOSEN]
            weights = scores[row][chosen] / scores[row][chosen].sum() * 1.5
            for e, weight in zip(chosen, weights, strict=True):
                inner = silu(v["experts_gate"][e] @ n) * (v["experts_up"][e] @ n)
                out[row] += weight * (v["experts_down"][e] @ inner)
            inner = silu(v["shared_gate"] @ n) * (v["shared_up"] @ n)
            factor = 1 / (1 + np.exp(-(v["shared_scale"] @ n)))
            out[row] += factor * (v["shared_down"] @ inner)
        return out
