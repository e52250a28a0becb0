"""Accelerators that PyTorch drives, where a plan and the machine have them. PyTorch is only loaded then."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from helmsman.executor._kernels import Buffer as HostBuffer
from helmsman.executor.devices.base import DeviceMemory, Lane, LinkSample
from helmsman.executor.devices.parts import Buffer
from helmsman.executor.machine import Machine
from helmsman.schemas.errors import HardwareUnavailableError
from helmsman.schemas.hardware import Device as DeviceRecord
from helmsman.schemas.hardware import Hardware, Link

if TYPE_CHECKING:
    import torch

    from helmsman.executor.torch_device.device import TorchDevice
    from helmsman.executor.torch_device.pinning import Pinned

KINDS = ("cuda",)
LARGE, SMALL = 64 << 20, 64
"""Bytes of copies that tell a link's rate and its latency."""


@dataclass(frozen=True)
class Accelerators:
    """By the plan's names."""

    devices: "dict[str, TorchDevice]" = field(default_factory=dict)

    @property
    def memories(self) -> dict[str, DeviceMemory]:
        """Theirs."""
        return {device.memory.name: device.memory for device in self.devices.values()}

    def lane(self, name: str, link: Link) -> Lane | None:
        """A lane of a link that ends at one of them; None for other links."""
        for device in self.devices.values():
            if device.memory.name in (link.source_memory, link.target_memory):
                ends = [self._place(memory) for memory in (link.source_memory, link.target_memory)]
                return Lane(name, device.open_engine(), partial(_sample, *ends))
        return None

    def pin(self, buffers: Iterable[Buffer]) -> "Pinned | None":
        """The host's among `buffers`, page-locked until they are released; None where nothing here needs that."""
        if not self.devices:
            return None
        from helmsman.executor.torch_device.pinning import Pinned

        device = next(iter(self.devices.values())).memory.device
        return Pinned((each for each in buffers if isinstance(each, HostBuffer)), device)

    def _place(self, memory: str) -> "torch.device":
        import torch

        found = [device.memory.device for device in self.devices.values() if device.memory.name == memory]
        return found[0] if found else torch.device("cpu")


def open_accelerators(hardware: Hardware, records: Sequence[DeviceRecord], machine: Machine) -> Accelerators:
    """Those among `records` that PyTorch drives, the first of a kind in the record on the machine's first.

    Raises HardwareUnavailableError for one that the machine does not have."""
    found: dict[str, TorchDevice] = {}
    for record in records:
        if record.kind in KINDS:
            found[record.name] = _open(hardware, record, machine)
    return Accelerators(found)


def _open(hardware: Hardware, record: DeviceRecord, machine: Machine) -> "TorchDevice":
    alike = [each.name for each in hardware.devices if each.kind == record.kind]
    there, number = machine.accelerators.get(record.kind, ()), alike.index(record.name)
    if number >= len(there):
        raise HardwareUnavailableError(
            f"device {record.name} ({record.product or record.kind}) is not there: "
            f"this machine has {len(there) or 'no'} {record.kind} devices that PyTorch can use",
            field="hardware.devices",
            remedy="make a plan for this machine: helm-plan --hw this",
        )
    import torch

    from helmsman.executor.torch_device.buffers import TorchMemory
    from helmsman.executor.torch_device.device import TorchDevice

    memory = hardware.memory(record.memory)
    return TorchDevice(record.name, TorchMemory(memory.name, memory.available, torch.device(there[number])))


def _sample(source: "torch.device", target: "torch.device") -> LinkSample:
    from helmsman.executor.torch_device.probe import copy_seconds

    return LinkSample.of(partial(copy_seconds, source, target), LARGE, SMALL)
