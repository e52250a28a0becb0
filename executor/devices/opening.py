"""From the hardware of a plan to devices of this machine: who gets which CPUs, memory and copy engines."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import partial

from helmsman.executor._kernels import CopyEngine
from helmsman.executor.devices.accelerators import Accelerators, open_accelerators
from helmsman.executor.devices.base import DeviceMemory, ExecutorDevice, Lane, LinkSample
from helmsman.executor.devices.cpu import CpuDevice
from helmsman.executor.devices.memory import BoundedMemory, Ram
from helmsman.executor.devices.probe import copy_buffers, link_sample
from helmsman.executor.system.machine import Machine
from helmsman.executor.system.room import RESERVE
from helmsman.schemas.errors import BadInputError, HardwareUnavailableError
from helmsman.schemas.hardware import NATIVE_KINDS, Hardware, Link, activation_lane, lane_owner
from helmsman.schemas.hardware import Device as DeviceRecord
from helmsman.schemas.storage import STORAGE


@dataclass(frozen=True)
class Devices:
    """The open devices of a plan by name, their memories, the lanes that copy between memories, and the RAM that
    memories share."""

    by_name: dict[str, ExecutorDevice]
    memories: dict[str, DeviceMemory]
    lanes: dict[str, Lane]
    ram: Ram
    accelerators: Accelerators = field(default_factory=Accelerators)

    @property
    def links(self) -> tuple[Lane, ...]:
        """A lane of every link, called as the link."""
        by_link = {lane_owner(name): lane for name, lane in self.lanes.items()}
        return tuple(replace(lane, name=name) for name, lane in by_link.items())


def open_devices(hardware: Hardware, resources: Iterable[str], machine: Machine, threads: int | None = None) -> Devices:
    """Open the devices and lanes called `resources`; the host on at most `threads` of its CPUs (PARK-48).

    Raises HardwareUnavailableError for a device that this machine does not have."""
    names = list(dict.fromkeys(resources))
    links = {link.name: link for link in hardware.links}
    owners = dict.fromkeys(lane_owner(name) for name in names)
    records = [_record(hardware, name) for name in owners if name not in links]
    _check_exclusive(records)
    others = open_accelerators(hardware, records, machine)
    ram = Ram(max(0, machine.memory - RESERVE))
    bounded = {
        m.name: BoundedMemory(m, m.available, ram)
        for m in hardware.memories
        if m.kind != STORAGE and m.name not in others.memories
    }
    memories: dict[str, DeviceMemory] = {**bounded, **others.memories}
    by_name: dict[str, ExecutorDevice] = {
        record.name: others.devices.get(record.name)
        or CpuDevice(record.name, bounded[record.memory], _cpus(hardware, record, machine, threads))
        for record in records
    }
    copied = {name: links[lane_owner(name)] for name in names if lane_owner(name) in links}
    lanes = {
        name: others.lane(name, link) or _lane(name, link, records, by_name)
        for name, link in copied.items()
        if link.source_memory in memories
    }
    return Devices(by_name, memories, lanes, ram, others)


def _record(hardware: Hardware, name: str) -> DeviceRecord:
    devices = [device for device in hardware.devices if device.name == name]
    if not devices:
        raise BadInputError("no such device in the plan's hardware", field="compute", value=name)
    return devices[0]


def _lane(name: str, link: Link, records: list[DeviceRecord], devices: dict[str, ExecutorDevice]) -> Lane:
    """The engine's thread shares the accelerator's last CPU, so that it never takes one of the host's; activations,
    which are small and waited for, go ahead of all else there."""
    ends = (link.source_memory, link.target_memory)
    cpus = [devices[record.name].cpus for record in records if record.kind == "loopback" and record.memory in ends]
    if not cpus:
        raise BadInputError(
            f"nothing moves bytes over link {link.name}: no loopback accelerator is at either end",
            field="hardware.links",
            remedy="join a loopback accelerator's memory, or keep the plan on one device",
        )
    ahead = name == activation_lane(link.name)
    engine = CopyEngine(link.bandwidth.value, link.latency.value, cpus[0][-1], ahead)
    return Lane(name, engine, partial(_sample, engine))


def _sample(engine: CopyEngine) -> LinkSample:
    return link_sample(engine, *copy_buffers())


def assign_cpus(hardware: Hardware, record: DeviceRecord, machine: Machine) -> tuple[int, ...]:
    """The CPUs of one device: loopback accelerators own the last ones, a host CPU gets the first of the rest.

    A device that excludes the loopback accelerators takes their CPUs too."""
    if record.kind not in NATIVE_KINDS:
        raise _unavailable(record, f"this machine has no {record.kind} device that Helm can run on")
    others = [d for d in hardware.devices if d.kind == "loopback" and d.name not in record.excludes]
    after = others[others.index(record) + 1 :] if record in others else others
    free = machine.cpus[: max(0, len(machine.cpus) - sum(d.cores or 1 for d in after))]
    wanted = record.cores or (1 if record.kind == "loopback" else len(free))
    if not 0 < wanted <= len(free):
        raise _unavailable(record, f"it needs {wanted} CPUs where {len(free)} are left")
    return free[-wanted:] if record.kind == "loopback" else free[:wanted]


def _cpus(hardware: Hardware, record: DeviceRecord, machine: Machine, threads: int | None) -> tuple[int, ...]:
    cpus = assign_cpus(hardware, record, machine)
    return cpus[:threads] if record.name == hardware.devices[0].name else cpus


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
