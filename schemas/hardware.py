"""Hardware: memories, the devices that compute from them, the links between them; every number sourced."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from helmsman.schemas.base import Bytes, Count, Document, Frozen, Index, Name, NonNegative, Positive, version
from helmsman.schemas.formats import Format


class Source(Frozen):
    """Where numbers come from."""

    kind: Literal["measured", "fitted", "paper", "datasheet", "class", "assumed", "user"]
    where: Name
    date: Name | None = None
    tool: Name | None = None


class Figure(Frozen):
    """One number as a distribution: median `value`, 10th and 90th percentile, `n` samples (0: not sampled)."""

    value: NonNegative
    p10: NonNegative
    p90: NonNegative
    n: Index = 0
    source: Name = Field(description="key in the record's `sources`")

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.p10 <= self.value <= self.p90:
            raise ValueError(f"expected p10 <= value <= p90, got {self.p10}, {self.value}, {self.p90}")
        return self


class Memory(Frozen):
    """A bounded store. `bandwidth` is what all its users together can read, bytes/s."""

    name: Name
    kind: Literal["dram", "vram", "unified", "loopback", "optane", "cxl", "nvme"]
    product: Name | None = None
    capacity: Bytes
    available: Bytes = Field(description="bytes a plan may use (E-HELM-07)")
    bandwidth: Figure
    source: Name
    shares: Name | None = Field(default=None, description="memory whose physical bandwidth this one uses")


class Efficiency(Frozen):
    """Achieved share of a roofline bound; piecewise linear in log(`at`), constant outside.

    `bound` memory: share of the device's `read`, `at` = bytes the operation reads.
    `bound` compute: share of `flops`, `at` = tokens in the pass. `op` and `format` "*" match any."""

    bound: Literal["memory", "compute"]
    op: Literal["linear", "attention", "lookup", "*"] = "*"
    format: Format | Literal["*"] = "*"
    at: Annotated[tuple[Positive, ...], Field(min_length=1, max_length=256)]
    share: Annotated[tuple[Figure, ...], Field(min_length=1, max_length=256)]

    @model_validator(mode="after")
    def _aligned(self) -> Self:
        if len(self.at) != len(self.share) or list(self.at) != sorted(set(self.at)):
            raise ValueError("`at` must be strictly increasing and as long as `share`")
        return self


class Compute(Frozen):
    """Peak FLOP/s of a phase and weight format ("*" any)."""

    phase: Literal["prefill", "decode"]
    format: Format | Literal["*"] = "*"
    flops: Figure


class Device(Frozen):
    """Something that computes from one memory.

    `read`: sustained bytes/s from its memory (the roofline's M); `compute`: P; `efficiency`: eta.
    `launch`: least seconds between two operations (asynchronous launch, E-HELM-12);
    `overhead`: seconds added to every operation;
    `elementwise`: activation bytes/s of norms, rotations and lookups."""

    name: Name
    kind: Literal["cpu", "cuda", "rocm", "metal", "loopback"]
    product: Name | None = None
    device_class: Name | None = None
    memory: Name
    cores: Count | None = None
    excludes: Annotated[tuple[Name, ...], Field(max_length=64)] = Field(
        default=(), description="devices made of the same cores: a plan uses one or the other"
    )
    isa: Annotated[tuple[Name, ...], Field(max_length=32)] = ()
    read: Figure
    compute: Annotated[tuple[Compute, ...], Field(min_length=1, max_length=64)]
    efficiency: Annotated[tuple[Efficiency, ...], Field(max_length=256)] = ()
    launch: Figure | None = None
    overhead: Figure | None = None
    elementwise: Figure | None = None
    cache_bytes: Bytes | None = Field(default=None, description="last-level cache (C_L3)")
    cache_read: Figure | None = Field(default=None, description="bytes/s from that cache (B_L3)")


class Link(Frozen):
    """One direction between two memories: bytes/s, seconds per transfer, and the lane it occupies."""

    name: Name = Field(description="lane, e.g. h2d or d2h")
    source_memory: Name
    target_memory: Name
    kind: Name
    bandwidth: Figure
    latency: Figure


class Reading(Frozen):
    """A raw measurement kept with the record: what, under which conditions, with its distribution."""

    what: Name
    device: Name
    conditions: dict[Name, int | float | str]
    unit: Name
    figure: Figure


class Host(Frozen):
    """Facts of a measured machine."""

    cpu: Name
    cores: Count
    isa: Annotated[tuple[Name, ...], Field(max_length=64)] = ()
    ram: Bytes
    cache_bytes: Bytes | None = None
    os: Name | None = None


class Hardware(Document):
    """A machine: memories, devices, links. The first device is the host CPU."""

    schema_id: Literal["helm.hardware/1"] = version("helm.hardware/1")
    name: Name
    memories: Annotated[tuple[Memory, ...], Field(min_length=1, max_length=64)]
    devices: Annotated[tuple[Device, ...], Field(min_length=1, max_length=64)]
    links: Annotated[tuple[Link, ...], Field(max_length=512)] = ()
    sources: dict[Name, Source]
    host: Host | None = None
    readings: Annotated[tuple[Reading, ...], Field(max_length=4096)] = ()

    @model_validator(mode="after")
    def _joined(self) -> Self:
        memories = {memory.name for memory in self.memories}
        devices = {device.name for device in self.devices}
        if len(memories) < len(self.memories) or len(devices) < len(self.devices):
            raise ValueError("memory and device names must be unique")
        _all_known("memory", _memories_named(self), memories)
        _all_known("source", _sources_named(self), set(self.sources))
        return self

    def memory(self, name: str) -> Memory:
        """The memory called `name`."""
        return next(memory for memory in self.memories if memory.name == name)

    def device(self, name: str) -> Device:
        """The device called `name`."""
        return next(device for device in self.devices if device.name == name)

    def link(self, source: str, target: str) -> Link | None:
        """The link from memory `source` to memory `target`, if there is one."""
        return next((ln for ln in self.links if (ln.source_memory, ln.target_memory) == (source, target)), None)


def _all_known(what: str, used: set[str], known: set[str]) -> None:
    if used - known:
        raise ValueError(f"unknown {what} {sorted(used - known)[0]!r}")


def _memories_named(hardware: Hardware) -> set[str]:
    names = {device.memory for device in hardware.devices}
    names |= {memory.shares for memory in hardware.memories if memory.shares}
    for link in hardware.links:
        names |= {link.source_memory, link.target_memory}
    return names


def _sources_named(hardware: Hardware) -> set[str]:
    names = {memory.source for memory in hardware.memories}
    names |= {memory.bandwidth.source for memory in hardware.memories}
    for link in hardware.links:
        names |= {link.bandwidth.source, link.latency.source}
    for device in hardware.devices:
        names |= {figure.source for figure in _figures(device)}
    return names | {reading.figure.source for reading in hardware.readings}


def _figures(device: Device) -> list[Figure]:
    optional = (device.launch, device.overhead, device.elementwise, device.cache_read)
    figures = [device.read, *(compute.flops for compute in device.compute)]
    figures += [figure for figure in optional if figure is not None]
    return figures + [share for curve in device.efficiency for share in curve.share]
