"""The thread of a host that launches the operations of all devices eagerly, one after the other.

PyTorch's eager mode launches a GPU's kernels from the thread that also calls the CPU's operators. A launch takes that
thread a moment and the kernel runs behind it; an operator of the CPU takes it from start to end. So no pass is shorter
than what its one thread does in all, however much of it the devices could do at the same time."""

from collections.abc import Callable
from math import inf

from helmsman.lowering.graph import Task
from helmsman.schemas.figures import Figure
from helmsman.schemas.hardware import Hardware, lane_owner


class HostThread:
    """The launching thread's seconds by task; `known`: whether any device is launched by it.

    Where one is, the host runs such software, so that operations of its CPUs are its thread's, too."""

    def __init__(self, hardware: Hardware, of: Callable[[Figure], float]) -> None:
        """`of`: which end of the interval of the seconds of a launch."""
        launched = {d.name: of(d.launching) for d in hardware.devices if d.launching is not None}
        own = {device.name: inf for device in hardware.devices if device.kind == "cpu"} if launched else {}
        self._most = launched | own

    @property
    def known(self) -> bool:
        """Whether any device is launched by it."""
        return bool(self._most)

    def seconds(self, task: Task, alone: float) -> float:
        """Return seconds of the thread for a task that takes `alone` seconds by itself; no more than these, so that
        tasks that follow each other keep their sum."""
        return min(alone, self._most.get(lane_owner(task.resource), 0.0))
