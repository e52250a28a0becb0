"""The loopback accelerator: CPUs, a hard memory limit and a throttled link that stand in for a GPU.

It computes with the CPU kernels, but on CPUs of its own, from memory of its own, behind copies that take
as long as its link's record says; so splits, transfers and running out of memory are real on any machine."""

from collections.abc import Sequence

from helmsman.executor._kernels import CopyEngine
from helmsman.executor.devices.base import Lane
from helmsman.executor.devices.cpu import CpuDevice
from helmsman.executor.devices.memory import BoundedMemory
from helmsman.schemas.hardware import Link


class LoopbackDevice(CpuDevice):
    """A device on `cpus` with the capacity of `memory` as its VRAM and the copy engines of its `links`."""

    def __init__(self, name: str, memory: BoundedMemory, cpus: Sequence[int], links: Sequence[Link]) -> None:
        super().__init__(name, memory, cpus)
        self.lanes = {(link.source_memory, link.target_memory): self._lane(link) for link in links}

    def _lane(self, link: Link) -> Lane:
        """The engine's thread shares the device's last CPU, so that it never takes one of the host's."""
        return Lane(link.name, CopyEngine(link.bandwidth.value, link.latency.value, self.cpus[-1]))
