"""Which device of a machine plays which part in a plan that splits work between host and accelerator."""

from dataclasses import dataclass

from helmsman.schemas.errors import BadInputError
from helmsman.schemas.formats import Format
from helmsman.schemas.hardware import Device, Hardware


@dataclass(frozen=True, slots=True)
class Roles:
    """`host`: the CPU beside an accelerator; `solo`: the CPU with every core; `accelerator`: the first one."""

    hardware: Hardware
    host: Device
    solo: Device
    accelerator: Device | None

    @property
    def separate(self) -> bool:
        """Whether the accelerator has a memory of its own."""
        return self.accelerator is not None and self.accelerator.memory != self.host.memory

    @property
    def joined(self) -> bool:
        """Whether hidden states can go to the accelerator and tokens back."""
        if self.accelerator is None:
            return False
        here, there = self.host.memory, self.accelerator.memory
        return here == there or bool(self.hardware.link(here, there) and self.hardware.link(there, here))

    @property
    def unused(self) -> tuple[str, ...]:
        """Devices that take no part: accelerators beyond the first."""
        parts = {self.host.name, self.solo.name, self.accelerator.name if self.accelerator else ""}
        return tuple(device.name for device in self.hardware.devices if device.name not in parts)

    @property
    def activations(self) -> Format:
        """The native executor keeps activations in f32, GPUs in f16 (eq 4.4)."""
        native = self.accelerator is None or self.accelerator.kind == "loopback"
        return "f32" if native else "f16"


def roles(hardware: Hardware) -> Roles:
    """The roles of the machine's devices. Raises BadInputError without a CPU."""
    processors = [device for device in hardware.devices if device.kind == "cpu"]
    if not processors:
        raise BadInputError("a machine needs a device of kind cpu", field="devices")
    shared = [device for device in processors if not device.excludes] or processors
    host = min(shared, key=lambda device: len(device.excludes))
    others = [device for device in hardware.devices if device.kind != "cpu"]
    accelerator = others[0] if others else None
    if accelerator is not None:
        host = next((d for d in processors if accelerator.name not in d.excludes), host)
    solo = max(processors, key=lambda device: device.cores or 0)
    return Roles(hardware, host, solo, accelerator)
