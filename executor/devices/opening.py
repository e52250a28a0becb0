"""From the hardware of a plan to devices of this machine: who gets which CPUs, memory and copy engines."""

from collections.abc import Iterable
from dataclasses import dataclass

from helmsman.executor.devices.base import Device, Lane
from helmsman.executor.devices.cpu import CpuDevice
from helmsman.executor.devices.loopback import LoopbackDevice
from helmsman.executor.devices.memory import BoundedMemory
from helmsman.executor.machine import Machine
from helmsman.schemas.errors import BadInputError, HardwareUnavailableError
from helmsman.schemas.hardware import Device as DeviceRecord
from helmsman.schemas.hardware import Hardware


@dataclass(frozen=True)
class Devices:
    """The open devices of a plan by name, and the lanes between their memories."""

    by_name: dict[str, Device]
    lanes: dict[tuple[str, str], Lane]

    def lane(self, source: str, target: str) -> Lane:
        """The lane from memory `source` to memory `target`. Raises BadInputError when there is none."""
        if (source, target) not in self.lanes:
            raise BadInputError(
                f"no link from memory {source} to memory {target}",
                field="hardware.links",
                remedy="add the link to the hardware record, or keep the plan on one device",
            )
        return self.lanes[source, target]


def open_devices(hardware: Hardware, names: Iterable[str], machine: Machine) -> Devices:
    """Open the devices called `names`.

    Raises HardwareUnavailableError for a device that this machine does not have."""
    records = [_record(hardware, name) for name in dict.fromkeys(names)]
    _check_exclusive(records)
    memories: dict[str, BoundedMemory] = {}
    by_name: dict[str, Device] = {}
    lanes: dict[tuple[str, str], Lane] = {}
    for record in records:
        memory = memories.setdefault(record.memory, _memory(hardware, record.memory, machine))
        cpus = assign_cpus(hardware, record, machine)
        if record.kind == "loopback":
            links = [ln for ln in hardware.links if record.memory in (ln.source_memory, ln.target_memory)]
            device = LoopbackDevice(record.name, memory, cpus, links)
            lanes |= device.lanes
            by_name[record.name] = device
        else:
            by_name[record.name] = CpuDevice(record.name, memory, cpus)
    return Devices(by_name, lanes)


def assign_cpus(hardware: Hardware, record: DeviceRecord, machine: Machine) -> tuple[int, ...]:
    """The CPUs of one device: loopback accelerators own the last ones, a host CPU gets the first of the rest.

    A device that excludes the loopback accelerators takes their CPUs too."""
    if record.kind not in ("cpu", "loopback"):
        raise _unavailable(record, f"this machine has no {record.kind} device that Helm can run on")
    others = [d for d in hardware.devices if d.kind == "loopback" and d.name not in record.excludes]
    after = others[others.index(record) + 1 :] if record in others else others
    free = machine.cpus[: max(0, len(machine.cpus) - sum(d.cores or 1 for d in after))]
    wanted = record.cores or (1 if record.kind == "loopback" else len(free))
    if not 0 < wanted <= len(free):
        raise _unavailable(record, f"it needs {wanted} CPUs where {len(free)} are left")
    return free[-wanted:] if record.kind == "loopback" else free[:wanted]


def _memory(hardware: Hardware, name: str, machine: Machine) -> BoundedMemory:
    """A loopback's memory ends where its record says; the host's also where RAM does."""
    record = hardware.memory(name)
    return BoundedMemory(record, min(record.available, machine.memory))


def _record(hardware: Hardware, name: str) -> DeviceRecord:
    found = [device for device in hardware.devices if device.name == name]
    if not found:
        raise BadInputError("no such device in the plan's hardware", field="compute", value=name)
    return found[0]


def _check_exclusive(records: list[DeviceRecord]) -> None:
    names = {record.name for record in records}
    for record in records:
        for other in names.intersection(record.excludes):
            raise BadInputError(
                f"devices {record.name} and {other} are made of the same cores",
                field="compute",
                remedy="use one or the other",
            )


def _unavailable(record: DeviceRecord, reason: str) -> HardwareUnavailableError:
    return HardwareUnavailableError(
        f"device {record.name} ({record.product or record.kind}) is not there: {reason}",
        field="hardware.devices",
        remedy="make a plan for this machine: helm-plan --hw this",
    )
