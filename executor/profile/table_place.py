"""Where on this machine an operation table is measured: the devices of a record, their CPUs, the link between them."""

from dataclasses import dataclass

from helmsman.executor.devices.opening import assign_cpus
from helmsman.executor.measuring.host_facts import host_facts
from helmsman.executor.profile.question import LayerQuestion, MeasuredDevice, profile_key
from helmsman.executor.system.machine import Machine
from helmsman.planner.machine import roles
from helmsman.schemas.errors import HardwareUnavailableError
from helmsman.schemas.hardware import Device, Hardware, Link
from helmsman.schemas.operation_table import OperationTable


@dataclass(frozen=True)
class TablePlace:
    """The devices of a record that a table is about, on this machine."""

    hardware: Hardware
    machine: Machine
    host: MeasuredDevice
    accelerator: MeasuredDevice
    link: Link

    @classmethod
    def of(cls, hardware: Hardware, machine: Machine) -> "TablePlace":
        """Raises HardwareUnavailableError for a record without a loopback accelerator, or of another machine."""
        device_roles = roles(hardware)
        accelerator = device_roles.accelerator
        link = None if accelerator is None else hardware.link(device_roles.host.memory, accelerator.memory)
        if accelerator is None or accelerator.kind != "loopback" or link is None:
            raise HardwareUnavailableError(
                "operation tables need an accelerator, and the profile of this machine has no loopback one",
                field="model",
                remedy="set one up with `loopback`, for instance cores=1",
            )
        if hardware.host is None or hardware.host.cpu != host_facts(machine).cpu:
            there = hardware.host.cpu if hardware.host else hardware.name
            raise HardwareUnavailableError(
                "the newest profile is of another machine",
                field="hardware.host",
                value=there,
                remedy="profile this one: helm-profile --loopback cores=1",
            )

        def seat(device: Device) -> MeasuredDevice:
            return MeasuredDevice(device.name, assign_cpus(hardware, device, machine))

        return cls(hardware, machine, seat(device_roles.host), seat(accelerator), link)

    def key(self, question: LayerQuestion) -> str:
        """The digest of what the table of `question` depends on here."""
        return profile_key(question, host_facts(self.machine).cpu, self.host, self.accelerator, self.link)

    def known(self, question: LayerQuestion) -> OperationTable | None:
        """The table of the same question that the record already has."""
        key = self.key(question)
        return next((table for table in self.hardware.tables if table.key == key), None)

    def read(self, seat: MeasuredDevice) -> float:
        """Bytes/s of a device's plain read in its record."""
        return self.hardware.device(seat.name).read.value
