"""Weights on their way home: one tensor at a time from the mapped checkpoint into the packed form kernels read."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from helmsman.executor._kernels import Buffer, pack, packed_size
from helmsman.executor.devices.memory import BoundedMemory
from helmsman.executor.formats import computing_format
from helmsman.executor.weights.checkpoint import Checkpoint
from helmsman.lowering.rules import residence
from helmsman.lowering.tensors import Tensor, tensors
from helmsman.schemas.formats import Format
from helmsman.schemas.plan import Plan

if TYPE_CHECKING:
    from helmsman.executor._kernels import Linear, Norm


class Placer:
    """Places the tensors of a plan in one memory, each once: a tied head shares the embedding's table.

    `on_bytes` is told the size of every tensor as it arrives."""

    def __init__(
        self, plan: Plan, checkpoint: Checkpoint, memory: BoundedMemory, on_bytes: Callable[[int], None]
    ) -> None:
        self._plan = plan
        self._checkpoint = checkpoint
        self._memory = memory
        self._on_bytes = on_bytes
        self._index = {(tensor.name, tensor.layer): tensor for tensor in tensors(plan.model)}
        self._tables: dict[tuple[str, int | None, Format], Buffer] = {}

    def linear(self, op: str, layer: int | None = None) -> "Linear":
        """Weight and bias of a linear layer, or the token table of the embedding."""
        tensor = self._index[f"{op}.weight", layer]
        fmt = computing_format(residence(self._plan, tensor).format, tensor.name)
        rows, columns = tensor.shape
        weight = self._packed(tensor, fmt, rows, columns)
        bias = self._optional(f"{op}.bias", layer)
        return {"weight": weight, "format": fmt, "rows": rows, "columns": columns, "bias": bias}

    def norm(self, op: str, layer: int | None = None) -> "Norm":
        """Scale and, for layer norms, shift in f32."""
        weight = self.vector(self._index[f"{op}.weight", layer])
        return {"weight": weight, "bias": self._optional(f"{op}.bias", layer)}

    def positions(self, offset: int, capacity: int) -> Buffer:
        """f32 (capacity, hidden): the learned positions of tokens 0, 1, ..."""
        tensor = self._index["positions.weight", None]
        return self.vector(tensor, slice(offset, offset + capacity))

    def vector(self, tensor: Tensor, rows: slice = slice(None)) -> Buffer:
        """A small tensor, or some of its rows, in f32."""
        fmt, values = self._checkpoint.tensor(tensor)
        placed = self._memory.place(as_f32(fmt, values.reshape(tensor.shape)[rows]), _place(tensor))
        self._on_bytes(values.nbytes)
        return placed

    def _optional(self, name: str, layer: int | None) -> Buffer | None:
        tensor = self._index.get((name, layer))
        return None if tensor is None else self.vector(tensor)

    def _packed(self, tensor: Tensor, fmt: Format, rows: int, columns: int) -> Buffer:
        stored = self._index[tensor.tied_to, None] if tensor.tied_to else tensor
        key = (stored.name, stored.layer, fmt)
        if key not in self._tables:
            source_format, values = self._checkpoint.tensor(stored)
            target = self._memory.alloc(packed_size(fmt, rows, columns), _place(tensor))
            pack(np.ascontiguousarray(values).data, source_format, target, fmt, rows, columns)
            self._checkpoint.release(stored)
            self._tables[key] = target
            self._on_bytes(values.nbytes)
        return self._tables[key]


def as_f32(fmt: Format, values: NDArray[Any]) -> NDArray[np.float32]:
    """Stored values, bf16 as uint16, in f32."""
    if fmt == "bf16":
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32)


def _place(tensor: Tensor) -> str:
    return tensor.name if tensor.layer is None else f"{tensor.name} of block {tensor.layer}"
