"""Which device of a machine plays which part in a plan that splits work between host and accelerator."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from helmsman.schemas.errors import BadInputError, UsageError
from helmsman.schemas.formats import Format
from helmsman.schemas.hardware import NATIVE_KINDS, Device, Hardware
from helmsman.schemas.same import Same


@dataclass(frozen=True, slots=True)
class Roles:
    """`host`: the CPU beside an accelerator; `solo`: the CPU with every core; `accelerator`: the first within reach
    (that reads the host's memory, or has links both ways to it); `others`: those that may work beside both."""

    hardware: Hardware
    host: Device
    solo: Device
    accelerator: Device | None
    others: tuple[Device, ...] = ()

    @property
    def accelerators(self) -> tuple[Device, ...]:
        """All that may work together, in the record's order."""
        return () if self.accelerator is None else (self.accelerator, *self.others)

    @property
    def per_accelerator(self) -> "tuple[Roles, ...]":
        """Return the same roles for one accelerator after the other."""
        return tuple(replace(self, accelerator=device, others=()) for device in self.accelerators)

    def on(self, hardware: Hardware) -> "Roles":
        """Return the same roles on a machine that differs in figures alone."""
        away = None if self.accelerator is None else hardware.device(self.accelerator.name)
        others = tuple(hardware.device(device.name) for device in self.others)
        return Roles(hardware, hardware.device(self.host.name), hardware.device(self.solo.name), away, others)

    @property
    def separate(self) -> bool:
        """Whether the accelerator has a memory of its own."""
        return self.accelerator is not None and self.accelerator.memory != self.host.memory

    @property
    def unified(self) -> bool:
        """Whether host and accelerator read one memory, so that nothing is gained by moving data."""
        return self.accelerator is not None and not self.separate

    @property
    def unused(self) -> tuple[str, ...]:
        """Devices that take no part: accelerators beyond the first or out of reach, CPUs of other NUMA nodes."""
        parts = {self.host.name, self.solo.name, self.accelerator.name if self.accelerator else ""}
        return tuple(device.name for device in self.hardware.devices if device.name not in parts)

    @property
    def activations(self) -> Format:
        """The native executor keeps activations in f32, GPUs in f16 (eq 4.4)."""
        native = self.accelerator is None or self.accelerator.kind == "loopback"
        return "f32" if native else "f16"


def roles(hardware: Hardware) -> Roles:
    """The roles of the machine's devices. Raises BadInputError without a CPU."""
    return _roles(Same(hardware))


@lru_cache(maxsize=16)
def _roles(same: Same[Hardware]) -> Roles:
    hardware = same.document
    processors = [device for device in hardware.devices if device.kind == "cpu"]
    if not processors:
        raise BadInputError("a machine needs a device of kind cpu", field="devices")
    shared = [device for device in processors if not device.excludes] or processors
    host = min(shared, key=lambda device: len(device.excludes))
    solo = max(processors, key=lambda device: device.cores or 0)
    for accelerator in _accelerators(hardware):
        beside = [device for device in processors if accelerator.name not in device.excludes] or [host]
        near = (device for device in beside if _joined(hardware, device.memory, accelerator.memory))
        if (near_host := next(near, None)) is not None:
            return Roles(hardware, near_host, solo, accelerator, tuple(_beside(hardware, near_host, accelerator)))
    return Roles(hardware, host, solo, None)


def is_own(engine: str | None) -> bool:
    """Return whether the engine that a question names is Helm's own executor, which it is by default."""
    return engine in (None, "ours")


def keeps_bf16(hardware: Hardware, engine: str | None) -> bool:
    """Return whether weights of a checkpoint in bf16 stay so where no format is asked for: where nothing but Helm's own
    kernels computes, which read bf16 as fast as f16 and compute prompts in it with units of bf16. GPUs of before 2020
    have no such units, and all have those of f16."""
    return is_own(engine) and all(device.kind in NATIVE_KINDS for device in hardware.devices)


def without_loopback(hardware: Hardware) -> Hardware:
    """Return the machine without accelerators that are made of its own cores, which only Helm's executor has; where no
    other is left, the processors have all of their cores."""
    if all(device.kind != "loopback" for device in hardware.devices):
        return hardware
    solo = roles(hardware).solo
    real = any(device.kind not in ("cpu", "loopback") for device in hardware.devices)
    kept = [device for device in hardware.devices if device.kind != "loopback" and (real or device == solo)]
    names, within = {device.name for device in kept}, {device.memory for device in kept}
    memories = [memory for memory in hardware.memories if memory.name in within or memory.kind != "loopback"]
    alone = {"joint": None, "joint_products": (), "joint_compute": None}
    between = hardware.between_passes
    begin = {} if between is None else {name: delay for name, delay in between.begin.items() if name in names}
    changed: dict[str, object] = {
        "devices": tuple(
            device.model_copy(update={"excludes": tuple(other for other in device.excludes if other in names)})
            for device in kept
        ),
        "memories": tuple(memory.model_copy(update=alone) for memory in memories),
        "links": tuple(
            link for link in hardware.links if {link.source_memory, link.target_memory} <= {m.name for m in memories}
        ),
        "between_passes": between.model_copy(update={"begin": begin}) if between is not None and begin else None,
    }
    return hardware.model_copy(update=changed)


def _beside(hardware: Hardware, host: Device, first: Device) -> Iterator[Device]:
    """The accelerators that may work beside `host` and `first`, of other cores than theirs and than each other's."""
    taken = {*host.excludes, *first.excludes, first.name}
    for device in _accelerators(hardware):
        apart = device.name not in taken and not {host.name, first.name} & set(device.excludes)
        if apart and _joined(hardware, host.memory, device.memory):
            taken |= {*device.excludes, device.name}
            yield device


def why_unused(hardware: Hardware, name: str) -> str:
    """Why the device called `name` takes no part in a plan of host and accelerator."""
    device, host = hardware.device(name), roles(hardware).host
    if device.kind == "cpu":
        return f"plans use one CPU, {host.name}"
    joined = _joined(hardware, host.memory, device.memory)
    return "the plan uses fewer accelerators" if joined else _no_links(host.memory, device.memory)


def check_separate(roles: Roles, strategy: str) -> None:
    """Raise UsageError where `strategy` has nothing to move: without an accelerator that has a memory of its own."""
    if roles.separate:
        return
    problem, remedy = _unsuited(roles)
    raise UsageError(problem, field="strategy", value=strategy, remedy=remedy)


def _unsuited(roles: Roles) -> tuple[str, str]:
    """Why there is nothing to move, and what to do instead."""
    memory, alone = roles.host.memory, next(_accelerators(roles.hardware), None)
    if roles.accelerator is not None:
        problem = f"{roles.host.name} and {roles.accelerator.name} share one memory, {memory}: offloading gains nothing"
        return problem, "use `strategy` layer-split: everything is there already"
    if alone is None:
        return (
            "this machine has no accelerator with a memory of its own",
            "use `strategy` layer-split: it plans on the CPU",
        )
    problem = f"{alone.name} has a memory of its own, but there are {_no_links(memory, alone.memory)}"
    return problem, "add them to the hardware record, or use `strategy` layer-split: it plans on the CPU"


def _no_links(here: str, there: str) -> str:
    return f"no links both ways between {here} and {there}"


def _accelerators(hardware: Hardware) -> Iterator[Device]:
    return (device for device in hardware.devices if device.kind != "cpu")


def _joined(hardware: Hardware, here: str, there: str) -> bool:
    """Whether hidden states can go there and tokens back."""
    return here == there or bool(hardware.link(here, there) and hardware.link(there, here))
