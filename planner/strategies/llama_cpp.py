"""`llama-cpp`: the last layers in the accelerator's memory, the others computed by the CPU where they live (HELM-72).

`-ngl N` counts the last N of layers + 1 slots, the output being the last one (as llama.cpp counts now; older versions
move the output only with N = layers + 1). The input layer stays with the CPU. Keys and values live with their layer.
Products of 32 tokens and more are computed on the accelerator even so, their weights copied each time (op offload)."""

from bisect import bisect_left
from dataclasses import dataclass, replace

from helmsman.lowering.placement import Placement
from helmsman.planner.memory import memory_use, shortages
from helmsman.planner.strategies.engines.overrides import Override
from helmsman.planner.strategies.engines.slots import Split, place
from helmsman.planner.strategies.engines.software import NATIVE, Software
from helmsman.planner.strategies.streaming.place import Frame


@dataclass(frozen=True, slots=True)
class LlamaCpp:
    """`ngl`: slots on the accelerator, None: as many as fit; `overrides`: tensors that live elsewhere; `op_offload`:
    large products go to the accelerator."""

    ngl: int | None = None
    overrides: tuple[Override, ...] = ()
    op_offload: bool = True

    @property
    def name(self) -> str:
        """As on the command line."""
        return "llama-cpp"

    @property
    def software(self) -> Software:
        """Native code and captured graphs."""
        return NATIVE

    def placement(self, frame: Frame) -> Placement:
        """The rules for `ngl` slots, or for as many as fit the accelerator's memory."""
        return self._at(frame, self.slots(frame))

    def slots(self, frame: Frame) -> int:
        """How many of layers + 1 slots are on the accelerator; more than there are means all."""
        if frame.roles.accelerator is None:
            return 0
        count = frame.model.layers + 1
        if self.ngl is not None:
            return min(self.ngl, count)
        most = bisect_left(range(count + 1), True, key=lambda slots: self._crowded(frame, slots)) - 1
        return max(most, 0)

    def label(self, frame: Frame) -> str:
        """`llama-cpp -ngl 17`, and how many `-ot` rules there are."""
        rules = f" -ot {len(self.overrides)}" if self.overrides else ""
        return f"{self.name} -ngl {self.slots(frame)}{rules}"

    def smaller(self, frame: Frame) -> str | None:
        """The largest `--ngl` that fits, where another was asked for."""
        other = replace(self, ngl=None)
        slots = other.slots(frame)
        suits = slots != self.slots(frame) and not shortages(memory_use(other.placement(frame)))
        return f"--ngl {slots}" if suits else None

    def _crowded(self, frame: Frame, slots: int) -> bool:
        """Whether so many slots are too much for the accelerator's memory."""
        assert frame.roles.accelerator is not None
        return frame.roles.accelerator.memory in shortages(memory_use(self._at(frame, slots)))

    def _at(self, frame: Frame, slots: int) -> Placement:
        return place(Split(frame, slots, self.overrides, self.op_offload))
