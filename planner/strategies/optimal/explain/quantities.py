"""Quantities of a machine that may be more or less: sizes and rates, each a figure of its record."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeVar

from helmsman.planner.machine import Roles
from helmsman.planner.strategies.streaming.store import WeightStore
from helmsman.schemas.figures import Figure, scaled_figure
from helmsman.schemas.hardware import Compute, Device, Hardware, Link, Memory
from helmsman.schemas.storage import STORAGE

What = Literal["capacity", "memory bandwidth", "link bandwidth", "cores", "arithmetic"]

Rated = TypeVar("Rated", Memory, Device, Link, Compute)

UNITS = {"capacity": 1e9, "memory bandwidth": 1e9, "link bandwidth": 1e9, "cores": 1.0, "arithmetic": 1e12}
"""In base units: a GB, GB/s, a core, TFLOP/s."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """`what` of the memory, link or device called `name`, of which there is `size` (bytes, bytes/s, cores, FLOP/s).

    A memory's bandwidth is also what the devices beside it read, and what links bring from storage; a link has all the
    lanes that it shares. Cores are the rates of arithmetic and of what goes through caches; the memory beside them
    stays what it is."""

    what: What
    name: str
    size: float

    @property
    def units(self) -> float:
        """How many GB, GB/s, cores or TFLOP/s there are."""
        return self.size / UNITS[self.what]

    def times(self, hardware: Hardware, factor: float) -> Hardware:
        """The machine with `factor` times as much of it."""
        if self.what in ("capacity", "memory bandwidth"):
            return self._with_memories(hardware, factor)
        if self.what == "link bandwidth":
            names = _lanes(hardware, self.name)
            links = tuple(_wider(link, factor) if link.name in names else link for link in hardware.links)
            return hardware.model_copy(update={"links": links})
        devices = (_stronger(device, factor) if self._is(device, hardware) else device for device in hardware.devices)
        return hardware.model_copy(update={"devices": tuple(devices)})

    def _with_memories(self, hardware: Hardware, factor: float) -> Hardware:
        if self.what == "capacity":
            larger = (_larger(memory, factor) if memory.name == self.name else memory for memory in hardware.memories)
            return hardware.model_copy(update={"memories": tuple(larger)})
        names = {self.name, hardware.memory(self.name).shares}
        stored = {memory.name for memory in hardware.memories if memory.name in names and memory.kind == STORAGE}
        links = (_wider(link, factor) if link.source_memory in stored else link for link in hardware.links)
        memories = (
            _faster(memory, "bandwidth", factor) if memory.name in names else memory for memory in hardware.memories
        )
        devices = (_faster(device, "read", factor) if device.memory in names else device for device in hardware.devices)
        changed = {"memories": tuple(memories), "devices": tuple(devices), "links": tuple(links)}
        return hardware.model_copy(update=changed)

    def _is(self, device: Device, hardware: Hardware) -> bool:
        """Whether a device is this one, or made of the same cores."""
        return device.name == self.name or device.name in hardware.device(self.name).excludes


def quantities(roles: Roles, store: WeightStore | None = None) -> Iterator[Quantity]:
    """Yield what host and accelerators have that a plan may lack: memories, links between host and them and from the
    `store` of a plan, arithmetic."""
    devices, home = [roles.host, *roles.accelerators], roles.host.memory
    hardware, names = roles.hardware, dict.fromkeys(device.memory for device in devices)
    for name in names:
        yield Quantity("capacity", name, float(hardware.memory(name).available))
    for name in names:
        yield Quantity("memory bandwidth", name, hardware.memory(name).bandwidth.value)
    for link in hardware.links:
        ends = {link.source_memory, link.target_memory}
        if home in ends and len(ends) > 1 and ends <= set(names):
            yield Quantity("link bandwidth", link.name, link.bandwidth.value)
    for name in () if store is None else store.memories:
        way = hardware.link(name, devices[-1].memory)
        if hardware.memory(name).kind == STORAGE:
            yield Quantity("memory bandwidth", name, hardware.memory(name).bandwidth.value)
        elif way is not None:
            yield Quantity("link bandwidth", way.name, way.bandwidth.value)
    for device in devices:
        yield _arithmetic(device)


def _arithmetic(device: Device) -> Quantity:
    if device.kind == "cpu" and device.cores is not None:
        return Quantity("cores", device.name, float(device.cores))
    return Quantity("arithmetic", device.name, device.compute[0].flops.value)


def _lanes(hardware: Hardware, name: str) -> set[str]:
    """A link, and those whose physical lanes it uses."""
    shares = {link.name: link.shares for link in hardware.links}
    lanes, link = {name}, shares[name]
    while link is not None and link not in lanes:
        lanes.add(link)
        link = shares[link]
    return lanes


def _larger(memory: Memory, factor: float) -> Memory:
    available = round(memory.available * factor)
    return memory.model_copy(update={"available": available, "capacity": max(memory.capacity, available)})


def _wider(link: Link, factor: float) -> Link:
    wider = _faster(link, "bandwidth", factor)
    return wider if link.carries is None else _faster(wider, "carries", factor)


def _stronger(device: Device, factor: float) -> Device:
    compute = tuple(_faster(rate, "flops", factor) for rate in device.compute)
    device = device.model_copy(update={"compute": compute})
    for name in ("elementwise", "decompress"):
        device = device if getattr(device, name) is None else _faster(device, name, factor)
    return device


def _faster(of: Rated, field: str, factor: float) -> Rated:
    rate: Figure = getattr(of, field)
    return of.model_copy(update={field: scaled_figure(rate, factor)})
