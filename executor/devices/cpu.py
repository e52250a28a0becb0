"""A device made of processors: the host, or a loopback accelerator.

A loopback accelerator computes with the host's kernels, but on CPUs of its own, from memory of its own, behind
copies that take as long as its link's record says; so splits, transfers and running out of memory are real on any
machine."""

from collections.abc import Sequence

from helmsman.executor._kernels import Pool
from helmsman.executor.devices.memory import BoundedMemory


class CpuDevice:
    """Computes on `cpus` from `memory`, one thread on each."""

    def __init__(self, name: str, memory: BoundedMemory, cpus: Sequence[int]) -> None:
        self.name = name
        self.memory = memory
        self.cpus = tuple(cpus)
        self.pool = Pool(self.cpus)
