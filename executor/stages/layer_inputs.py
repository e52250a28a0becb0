"""The rows that layers read of every token of a pass beside hidden states: a buffer by memory and batch."""

from dataclasses import dataclass, field

from helmsman.executor.devices.base import DeviceMemory
from helmsman.executor.devices.parts import Buffer
from helmsman.executor.devices.value_sizes import F32_BYTES
from helmsman.lowering.row_values import layer_input_values
from helmsman.schemas.model import Model


@dataclass
class LayerInputRows:
    """Buffers f32 (`rows`, `width`), made when a stage first needs them; `rows`: tokens of all sequences in the longest
    pass."""

    rows: int
    width: int
    _made: dict[tuple[str, int], Buffer] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Model, rows: int) -> "LayerInputRows | None":
        """Return those of a model; None where its layers have no inputs of their own."""
        width = layer_input_values(model)
        return cls(rows, width) if width else None

    def at(self, memory: DeviceMemory, batch: int) -> Buffer:
        """Return the buffer of a batch in a memory."""
        key = memory.name, batch
        if key not in self._made:
            self._made[key] = memory.alloc(F32_BYTES * self.rows * self.width, "inputs of layers")
        return self._made[key]
