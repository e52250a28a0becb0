"""Accelerators, where a plan has them: devices with a memory of their own that are no processors of this machine."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from helmsman.executor.devices.base import Accelerator, DeviceMemory, Lane, PageLocked
from helmsman.executor.devices.parts import Buffer
from helmsman.executor.system.machine import Machine
from helmsman.schemas.errors import HardwareUnavailableError
from helmsman.schemas.hardware import Device as DeviceRecord
from helmsman.schemas.hardware import Hardware, Link


@dataclass(frozen=True)
class Accelerators:
    """The accelerators that a plan uses, by their names in it."""

    devices: dict[str, Accelerator] = field(default_factory=dict)

    @property
    def memories(self) -> dict[str, DeviceMemory]:
        """The accelerators' memories by name."""
        return {device.memory.name: device.memory for device in self.devices.values()}

    def lane(self, name: str, link: Link) -> Lane | None:
        """Return a lane of a link that ends at an accelerator; None for other links."""
        source, target = (self.memories.get(memory) for memory in (link.source_memory, link.target_memory))
        for device in self.devices.values():
            if device.memory in (source, target):
                return device.open_lane(name, source, target)
        return None

    def pin(self, buffers: Iterable[Buffer]) -> PageLocked | None:
        """Page-lock those of `buffers` that are the host's, until they are released; None without accelerators."""
        if not self.devices:
            return None
        return next(iter(self.devices.values())).pin(buffers)


def open_accelerators(hardware: Hardware, records: Sequence[DeviceRecord], machine: Machine) -> Accelerators:
    """Open the accelerators among the devices `records` of a plan.

    Raises HardwareUnavailableError for one that the machine does not have."""
    return Accelerators(
        {record.name: OPENERS[record.kind](hardware, record, machine) for record in records if record.kind in OPENERS}
    )


def _open_torch(hardware: Hardware, record: DeviceRecord, machine: Machine) -> Accelerator:
    """Open an accelerator that PyTorch drives; PyTorch is loaded here and nowhere before. The first of a kind in the
    record is the machine's first."""
    alike = [device.name for device in hardware.devices if device.kind == record.kind]
    there, number = machine.accelerators.get(record.kind, ()), alike.index(record.name)
    if number >= len(there):
        raise HardwareUnavailableError(
            f"device {record.name} ({record.product or record.kind}) is not there: "
            f"this machine has {len(there) or 'no'} {record.kind} devices that PyTorch can use",
            field="hardware.devices",
            remedy="make a plan for this machine: helm-plan --hw this",
        )
    import torch

    from helmsman.executor.devices.torch.buffers import TorchMemory
    from helmsman.executor.devices.torch.device import TorchDevice

    memory = hardware.memory(record.memory)
    return TorchDevice(record.name, TorchMemory(memory.name, memory.available, torch.device(there[number])))


OPENERS: dict[str, Callable[[Hardware, DeviceRecord, Machine], Accelerator]] = {"cuda": _open_torch}
"""The function that opens an accelerator, by its kind. Such a device serves, and keeps weights as its own products
read them: they neither leave it, nor come to it while it serves."""
