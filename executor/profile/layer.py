"""A decoder layer as the executor runs it, so many times over that none is in a cache when its turn comes."""

from collections.abc import Mapping
from math import ceil

import numpy as np

from helmsman.executor._kernels import Buffer, Pool, Stage, packed_size
from helmsman.executor.devices.memory import arena_beside
from helmsman.executor.devices.specs import UniformSpec
from helmsman.executor.devices.tensors import Linear, NormVectors
from helmsman.executor.devices.value_sizes import F32_BYTES
from helmsman.executor.profile.buffers import filled_as, filled_weights
from helmsman.executor.profile.question import LayerQuestion
from helmsman.executor.stages.dense import DenseBlock, uniform
from helmsman.executor.stages.dimensions import dimensions
from helmsman.executor.stages.rope import rope_tables
from helmsman.executor.system.machine import beyond_caches
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import block_tensors
from helmsman.schemas.formats import StoredFormat, size_of
from helmsman.schemas.storage import BLOCK, in_blocks

MAX_COPIES = 96
"""The number of copies of a small layer at most: more would take longer to set up than to measure."""
MIN_COPIES = 2
CACHES = ("keys", "values")

Seconds = dict[str, list[float]]
"""By operation, of every time it ran."""


class Layers:
    """Copies of the layer of `question` in RAM: matrices, keys and values, filled.

    `blocks`: by tensor name (and `keys`, `values`) the buffers of every copy."""

    def __init__(self, question: LayerQuestion, cache_bytes: int) -> None:
        self.question = question
        sizes = buffer_sizes(question, question.format)
        self.count = copies(question, cache_bytes)
        arena = arena_beside(self.count * sum(in_blocks(size) for size in sizes.values()))
        self.blocks: list[Mapping[str, Buffer]] = [
            {name: arena.alloc(in_blocks(size), name).part(0, size) for name, size in sizes.items()}
            for _ in range(self.count)
        ]
        cached = [buffer for block in self.blocks for name, buffer in block.items() if name in CACHES]
        others = [buffer for block in self.blocks for name, buffer in block.items() if name not in CACHES]
        filled_as(cached, question.kv_format, 1.0)
        filled_weights(others, question.format, question.model.hidden**-0.5)

    def running(self, pool: Pool) -> "StageCopies":
        """The copies one after the other on the threads of `pool`."""
        return StageCopies(self, pool)


class StageCopies:
    """A stage of all copies and what it reads and writes."""

    def __init__(self, layers: Layers, pool: Pool) -> None:
        question = layers.question
        spec = _spec(layers)
        size = Stage.workspace_size(spec)
        hidden = F32_BYTES * question.batch * question.model.hidden
        arena = arena_beside(size + 2 * hidden + 4 * BLOCK)
        self.pool = pool
        self._past = question.context - 1
        states = [arena.alloc(hidden, "hidden states") for _ in range(2)]
        self._source, self._target = filled_as(states, "f32", 1.0)
        self._stage = Stage(pool, spec, arena.alloc(size, "workspace"), 0)
        self._names = [name.partition(".")[2] for name in self._stage.ops]
        self._stamps = np.zeros(len(self._names) + 1)

    def run(self) -> Seconds:
        """One decode step of every copy, as one call: what each operation took."""
        self._stage.run(self._source, self._target, 1, self._past, self._stamps.data)
        result: Seconds = {}
        for name, seconds in zip(self._names, np.diff(self._stamps).tolist(), strict=True):
            result.setdefault(name, []).append(seconds)
        return result


def buffer_sizes(question: LayerQuestion, fmt: StoredFormat) -> dict[str, int]:
    """Bytes of the matrices of a layer in `fmt` by tensor name, and of its keys and values."""
    sizes = {tensor.name: packed_size(fmt, *matrix_shape(tensor)) for tensor in matrices(question)}
    model = question.model
    cache = size_of(question.batch * model.dense.kv_width * question.capacity, question.kv_format)
    return {**sizes, **dict.fromkeys(CACHES, cache)}


def copies(question: LayerQuestion, cache_bytes: int) -> int:
    """How many layers are beyond a cache of `cache_bytes`."""
    layer_bytes = sum(in_blocks(size) for size in buffer_sizes(question, question.format).values())
    return min(MAX_COPIES, max(MIN_COPIES, ceil(beyond_caches(cache_bytes) / layer_bytes)))


def needed_bytes(question: LayerQuestion, cache_bytes: int) -> int:
    """RAM that measuring takes: the layers, two sets of arrivals, 4-bit groups, what plain reads go through."""
    layer_bytes = sum(in_blocks(size) for size in buffer_sizes(question, question.format).values())
    return (copies(question, cache_bytes) + 3) * layer_bytes + 3 * beyond_caches(cache_bytes)


def stored_bytes(question: LayerQuestion) -> int:
    """Bytes of the matrices of a layer, each in whole blocks."""
    sizes = buffer_sizes(question, question.format)
    return sum(in_blocks(sizes[tensor.name]) for tensor in matrices(question))


def matrices(question: LayerQuestion) -> list[Tensor]:
    """The weights of the linear operations."""
    return [tensor for tensor in block_tensors(question.model, 0) if len(tensor.shape) > 1]


def vectors(question: LayerQuestion) -> list[Tensor]:
    """Norms and biases."""
    return [tensor for tensor in block_tensors(question.model, 0) if len(tensor.shape) == 1]


def matrix_shape(tensor: Tensor) -> tuple[int, int]:
    """(rows, columns)."""
    rows, columns = tensor.shape
    return rows, columns


def _spec(layers: Layers) -> UniformSpec:
    question = layers.question
    model = question.model
    tables = rope_tables(model, question.capacity)
    return uniform(
        {
            **dimensions(model),
            "attention": "divided",
            "attention_activations": "f32",
            "batch": question.batch,
            "capacity": question.capacity,
            "context": question.capacity,
            "paged": False,
            "max_tokens": 1,
            "kv_format": question.kv_format,
            "rotary_dim": 2 * tables[0].shape[1] if tables else 0,
            "cos": tables[0].data if tables else None,
            "sin": tables[1].data if tables else None,
            "embedding": None,
            "looked_up": False,
            "positions": None,
            "blocks": [_block(layers, buffers) for buffers in layers.blocks],
            "final_norm": None,
            "sequences": 0,
            "passing": 0,
            "head": None,
        }
    )


def _block(layers: Layers, buffers: Mapping[str, Buffer]) -> DenseBlock:
    question = layers.question
    small = {tensor.name: np.ones(tensor.shape, np.float32) for tensor in vectors(question)}
    shapes = {tensor.op: matrix_shape(tensor) for tensor in matrices(question)}

    def vector(name: str) -> memoryview | None:
        return small[name].data if name in small else None

    def norm(op: str) -> NormVectors | None:
        weight = vector(f"{op}.weight")
        return None if weight is None else {"weight": weight, "bias": vector(f"{op}.bias")}

    def linear(op: str) -> Linear | None:
        if op not in shapes:
            return None
        rows, columns = shapes[op]
        weight = buffers[f"{op}.weight"]
        bias = vector(f"{op}.bias")
        return {"weight": weight, "format": question.format, "rows": rows, "columns": columns, "bias": bias}

    return {
        "norm1": norm("norm1"),
        "q": linear("q"),
        "k": linear("k"),
        "v": linear("v"),
        "q_norm": norm("q_norm"),
        "k_norm": norm("k_norm"),
        "o": linear("o"),
        "norm2": norm("norm2"),
        "gate": linear("gate"),
        "up": linear("up"),
        "down": linear("down"),
        "keys": buffers["keys"],
        "values": buffers["values"],
    }
