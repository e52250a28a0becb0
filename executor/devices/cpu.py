"""The host processor: native stages on threads pinned to the CPUs the plan leaves it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from helmsman.executor._kernels import Pool, Stage
from helmsman.executor.devices.memory import BoundedMemory

if TYPE_CHECKING:
    from helmsman.executor._kernels import StageSpec


class CpuDevice:
    """Runs stages on `cpus` from `memory`, one thread on each."""

    def __init__(self, name: str, memory: BoundedMemory, cpus: Sequence[int]) -> None:
        self.name = name
        self.memory = memory
        self.cpus = tuple(cpus)
        self.pool = Pool(self.cpus)

    def stage(self, spec: "StageSpec", first_layer: int) -> Stage:
        """A native stage; its workspace is allocated in the device's memory."""
        workspace = self.memory.alloc(Stage.workspace_size(spec), "workspace")
        return Stage(self.pool, spec, workspace, first_layer)
