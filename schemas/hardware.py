"""Hardware: memories, the devices that compute from them, the links between them; every number sourced."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from helmsman.schemas.base import Bytes, Count, Document, Frozen, Index, Name, Positive, empty, mistake, version
from helmsman.schemas.between_passes import BetweenPasses
from helmsman.schemas.engine_calibration import EngineCalibration
from helmsman.schemas.figures import Delay, Figure, Rate, Share, Slowing, Source
from helmsman.schemas.formats import Precision, StoredFormat
from helmsman.schemas.hardware_names import check_names
from helmsman.schemas.operation_table import OperationTable
from helmsman.schemas.rounding import DEFAULT_ROUNDING, Rounding


class JointProducts(Frozen):
    """What products with weights of a format reach in a memory when several of its devices do them at once: `share` of
    what plain reads by these devices reach together, each product divided between them and over when both are done."""

    format: StoredFormat
    share: Share


class Memory(Frozen):
    """A bounded store. `bandwidth` is what all its users together can read, bytes/s.

    `joint`: bytes/s of plain reads that several devices do at once, pieces of their own each, where that was measured;
    else `bandwidth` stands for it. `joint_products`: the shares of it that products reach, by the format of their
    weights; absent: 1. `joint_compute`: the part of its FLOP/s that a device keeps while another one of the
    memory computes, too (their threads may be of one core, or clocks fall). `free`: what any program finds free, where
    `available` is the budget that one executor leaves itself. `reserved`: in a plan for an engine that sizes its cache
    by itself, what of `available` it keeps for its largest pass, graphs and libraries: buffers of the plan are within
    it."""

    name: Name
    kind: Literal["dram", "vram", "unified", "loopback", "optane", "cxl", "nvme"]
    product: Name | None = None
    capacity: Bytes
    available: Bytes = Field(description="bytes a plan may use (E-HELM-07)")
    free: Bytes | None = Field(default=None, description="bytes free to any program; None: those available")
    reserved: Bytes | None = Field(default=None, description="in a plan: bytes that an engine keeps for itself")
    bandwidth: Rate
    joint: Rate | None = Field(default=None, description="of reads by several devices at once; else its bandwidth")
    joint_products: Annotated[tuple[JointProducts, ...], Field(max_length=16)] = ()
    joint_compute: Share | None = Field(
        default=None,
        description="share of its FLOP/s that a device keeps while another device of this memory computes; absent: 1",
    )
    source: Name
    shares: Name | None = Field(default=None, description="memory whose physical bandwidth this one uses")

    @model_validator(mode="after")
    def _within_capacity(self) -> Self:
        for field in ("available", "free", "reserved"):
            size: int | None = getattr(self, field)
            if size is not None and size > self.capacity:
                remedy = f"use at most the capacity, {self.capacity}"
                raise mistake("more than the memory holds", remedy, field, size)
        return self


class Efficiency(Frozen):
    """Achieved share of a roofline bound; piecewise linear in log(`at`), constant outside.

    `bound` memory: share of the device's `read`, `at` = bytes the operation reads; of `attention` those of one cache.
    `bound` compute: share of `flops`, `at` = tokens in the pass; of `attention` those of one sequence.
    `bound` inputs: share of `elementwise` at which the f32 values that a product takes are brought into its own form,
    `at` = tokens; all of them on every device that has a part of its rows, before its FLOPs.
    `op` and `format` "*" match any; `experts`: of an operation with the matrices of those that rows choose, `at` bytes
    of all of them or tokens of each; without a curve of theirs, that of `linear` counts; `reshape` turns a cache, whose
    bytes are read and written. `rounding`: where it was measured with activations of one precision, that; a plan keeps
    the curves of the one it is made for, and all of attention (`planner.cost.rounding`)."""

    bound: Literal["memory", "compute", "inputs"]
    op: Literal["linear", "experts", "attention", "lookup", "reshape", "*"] = "*"
    format: StoredFormat | Literal["*"] = "*"
    rounding: Precision | None = None
    at: Annotated[tuple[Positive, ...], Field(min_length=1, max_length=256)]
    share: Annotated[tuple[Share, ...], Field(min_length=1, max_length=256)]

    @model_validator(mode="after")
    def _aligned(self) -> Self:
        if len(self.at) != len(self.share) or list(self.at) != sorted(set(self.at)):
            raise mistake(
                "`at` must be strictly increasing and as long as `share`", "pair each `at` with a share", "at"
            )
        return self


class Compute(Frozen):
    """Peak FLOP/s of a phase and weight format ("*" any)."""

    phase: Literal["prefill", "decode"]
    format: StoredFormat | Literal["*"] = "*"
    flops: Rate


class Dispatch(Frozen):
    """How a thread of the host launches a device's operations, ahead of it (E-HELM-12).

    `seconds`: of the host for each operation; `sequence`: operations of a block that are done sequence by sequence, so
    launched once more for every further one of a decode step."""

    seconds: Delay
    sequence: Index = 0


OverheadKind = Literal["lookup", "norm", "append", "linear", "experts", "attention"]
"""Kinds of operations that may have an overhead of their own."""


class Edited(Frozen):
    """Holds the factors by which edits of a machine multiplied a device's rates: `read` the bytes/s from its memory,
    `flops` its FLOP/s."""

    read: Positive = 1.0
    flops: Positive = 1.0


UNEDITED = Edited()


def _is_unedited(edited: Edited) -> bool:
    """Whether no edit changed a rate."""
    return edited == UNEDITED


class Device(Frozen):
    """Something that computes from one memory.

    `read`: sustained bytes/s from its memory (the roofline's M); `compute`: P; `efficiency`: eta.
    `launch`: least seconds between two operations on the device; `dispatch`: what launching them takes on the host,
    where that is not a captured graph or native code; `launching`: in a plan, how long a launch keeps the one thread of
    the host at most, which launches for all devices in turn and computes what its CPUs do (`timing.host_thread`);
    `overhead`: seconds added to every operation; `overheads`: to operations of these kinds instead;
    `prompt_launch`: least seconds of an operation of a prompt, for every chunk of 512 rows that passes at a time, where
    prompts are launched operation by operation and decode steps are captured graphs;
    `prompt_overhead`: seconds added to an operation of a prompt for every 128 rows, instead of `overhead`; where its
    kind has one of `overheads`, beside that and to products with weights alone;
    `join`: seconds from the end of an operation to the start of the next, where that waits for other lanes too;
    `look_up`: seconds from the end of a router on this device until it is known which of the experts that it chose are
    in slots, for every chunk of 512 rows;
    `request`: seconds that a request adds to a layer's attention on this device in an online pass, beside its bytes;
    `elementwise`: activation bytes/s of norms, rotations and lookups;
    `edited`: by how much its rates are not those of its product, whose data sheet engines' constants are shares of;
    `rounding`: in a plan, how precise activations are where the device's kernels multiply many tokens; in a record
    nothing is chosen yet. GPUs compute in the format of their weights."""

    name: Name
    kind: Literal["cpu", "cuda", "rocm", "metal", "xpu", "loopback"]
    product: Name | None = None
    device_class: Name | None = None
    memory: Name
    cores: Count | None = None
    excludes: Annotated[tuple[Name, ...], Field(max_length=64)] = Field(
        default=(), description="devices made of the same cores: a plan uses one or the other"
    )
    isa: Annotated[tuple[Name, ...], Field(max_length=32)] = ()
    read: Rate
    compute: Annotated[tuple[Compute, ...], Field(min_length=1, max_length=64)]
    efficiency: Annotated[tuple[Efficiency, ...], Field(max_length=256)] = ()
    launch: Delay | None = None
    dispatch: Dispatch | None = None
    launching: Delay | None = Field(default=None, description="of an operation: seconds of the host's thread, at most")
    overhead: Delay | None = None
    overheads: dict[OverheadKind, Delay] | None = Field(default=None, description="of operations of a kind")
    prompt_launch: Delay | None = Field(default=None, description="least seconds of an operation of a prompt's chunk")
    prompt_overhead: Delay | None = Field(default=None, description="added to an operation of a prompt, by chunk")
    join: Delay | None = Field(default=None, description="between operations, where one waits for other lanes")
    look_up: Delay | None = Field(default=None, description="behind a router whose experts are cached in slots")
    request: Delay | None = Field(default=None, description="of attention in online passes: by request and layer")
    elementwise: Rate | None = None
    decompress: Rate | None = Field(default=None, description="bytes/s read and written to expand 4-bit groups")
    cache_bytes: Bytes | None = Field(default=None, description="last-level cache (C_L3)")
    cache_read: Rate | None = Field(default=None, description="bytes/s from that cache (B_L3)")
    rounding: Rounding | None = Field(
        default=None, description="in a plan: of activations in products of many tokens and in attention"
    )
    edited: Edited = Field(
        default=UNEDITED, exclude_if=_is_unedited, description="in an edited machine: what multiplied its rates"
    )

    @property
    def rounds(self) -> Rounding:
        """How its kernels round activations: as chosen, else as they do by themselves."""
        return self.rounding or DEFAULT_ROUNDING

    @property
    def expands(self) -> bool:
        """Whether products read values only, so that quantised weights become some first, a piece at a time."""
        return self.kind in ("cuda", "rocm", "xpu")

    @property
    def decompression_lane(self) -> str:
        """Where 4-bit groups are expanded: a GPU has a stream for that (PARK-36), other devices their only one."""
        return f"{self.name}:decompress" if self.kind in ("cuda", "rocm", "xpu") else self.name


class Footprint(Frozen):
    """How a link's rate depends on how many bytes a plan keeps in `memory` (GUPTA-03, 05, 06).

    `share` of the bandwidth at `at` bytes, piecewise linear in log(`at`), constant outside. `cache`: bytes of a
    direct-mapped cache before that memory (DRAM before Optane in Memory Mode), `cached`: bytes/s of what it has."""

    memory: Name
    at: Annotated[tuple[Positive, ...], Field(max_length=64)] = ()
    share: Annotated[tuple[Share, ...], Field(max_length=64)] = ()
    cache: Bytes | None = None
    cached: Rate | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if len(self.at) != len(self.share) or list(self.at) != sorted(set(self.at)):
            remedy = "pair each `at` with a share"
            raise mistake("`at` must be strictly increasing and as long as `share`", remedy, "at")
        if (self.cache is None) != (self.cached is None) or self.cache == 0:
            raise mistake("a cache has a size and a rate", "write both `cache` and `cached`, or none", "cache")
        if not self.at and self.cache is None:
            raise mistake("neither a curve nor a cache", "write one of them, or leave it out", "at")
        return self


class Interrupts(Frozen):
    """Which part of its work's time is added to a processor that also moves a link's data: while transfers are `small`,
    whose bytes take no longer than the link's latency, and while they are `large`."""

    small: Slowing
    large: Slowing


class Link(Frozen):
    """One direction between two memories: bytes/s and seconds per transfer. Its name is its lane.

    `shares`: another link whose physical lanes it uses too (an NVMe device behind the GPU's);
    `carries`: bytes/s of those lanes for all links that share them, where one link alone does not reach that;
    `pageable`: share of the bandwidth that is reached from memory which is not pinned; `managed`: by pages that migrate
    when they are touched;
    `overhead`: seconds that a transfer takes beside its latency and its bytes;
    `handover`: seconds from the end of a transfer to the start of what waits for it;
    `slows`: by device, how much longer its work takes while this link moves data, as a part of the work (0.4: 1.4
    times as long). Several links add up. None known: the devices work as if the link were idle (PARK-43);
    `interrupts`: by device whose processors also move the link's data, which part of its work's time that adds; what
    the device asks of memories while it works it asks in full;
    `footprint`: what its rate depends on."""

    name: Name = Field(description="lane, e.g. h2d or d2h; no other link or device has it")
    source_memory: Name
    target_memory: Name
    kind: Name
    bandwidth: Rate
    latency: Delay
    overhead: Delay | None = Field(default=None, description="of a transfer, beside latency and bytes")
    handover: Delay | None = Field(default=None, description="from a transfer's end to the start of what waits for it")
    shares: Name | None = None
    carries: Rate | None = Field(default=None, description="of its lanes, for all that share them; else its bandwidth")
    pageable: Share | None = None
    managed: Share | None = None
    slows: dict[Name, Slowing] | None = Field(default=None, description="by device: part of its work's time, added")
    interrupts: dict[Name, Interrupts] | None = Field(default=None, description="by device that moves its data")
    footprint: Footprint | None = None

    def reached(self, path: str) -> Figure | None:
        """Return the share of its bandwidth that data reaches which leaves its home by `path`; None: all of it."""
        return {"pageable": self.pageable, "managed": self.managed}.get(path)

    @model_validator(mode="after")
    def _carries_its_own(self) -> Self:
        if self.carries is None:
            return self
        if self.shares is not None:
            remedy = f"write it on {self.shares}, whose lanes they are"
            raise mistake("a link without lanes of its own", remedy, "carries", self.carries.value)
        if self.carries.value < self.bandwidth.value:
            raise mistake("less than the link reaches alone", "at least its bandwidth", "carries", self.carries.value)
        return self


NATIVE_KINDS = ("cpu", "loopback")
"""Kinds of devices that compute with Helm's own kernels."""


def is_small(link: Link, size: int) -> bool:
    """Whether so many bytes take no longer than the latency of `link`."""
    return size <= link.latency.value * link.bandwidth.value


def activation_lane(link: str) -> str:
    """Return the lane of a link on which activations pass by what is streamed ahead; both share its bandwidth."""
    return f"{link}:activations"


def expert_lane(link: str) -> str:
    """Return the lane of a link on which experts come to slots while caches and activations are under way."""
    return f"{link}:experts"


def lane_owner(lane: str) -> str:
    """Return the link or device that a lane belongs to."""
    return lane.partition(":")[0]


OTHERS = "others_cpu_share"
"""Of a reading: the share of all processor time that other processes used while a profile or a table was measured."""
LEFT = "points left"
"""Of a reading: how many points of a profile or of a table stayed `of` disturbed or unsteady. Records without it are of
before points were measured again and marked."""
TABLE = "table"
"""The condition under which a reading belongs to an operation table: its key."""


class Reading(Frozen):
    """A raw measurement kept with the record: what, under which conditions, with its distribution."""

    what: Name
    device: Name
    conditions: dict[Name, int | float | str]
    unit: Name
    figure: Figure


class DiskReads(Frozen):
    """Reads of `bytes` at random places of the disk that `folder` is on, past the page cache: bytes/s by the number of
    readers at once; `latency`: seconds of one, alone."""

    folder: Annotated[str, Field(min_length=1, max_length=4096)]
    bytes: Bytes
    readers: Annotated[tuple[Count, ...], Field(min_length=1, max_length=64)]
    rates: Annotated[tuple[Rate, ...], Field(min_length=1, max_length=64)]
    latency: Delay

    @model_validator(mode="after")
    def _paired(self) -> Self:
        if len(self.readers) != len(self.rates) or list(self.readers) != sorted(set(self.readers)):
            remedy = "pair each number of readers with a rate"
            raise mistake("`readers` must be strictly increasing and as long as `rates`", remedy, "readers")
        return self


class Host(Frozen):
    """Facts of a measured machine."""

    cpu: Name
    cores: Count
    isa: Annotated[tuple[Name, ...], Field(max_length=64)] = ()
    ram: Bytes
    cache_bytes: Bytes | None = None
    os: Name | None = None


class Hardware(Document):
    """A machine: memories, devices, links. The first device is the host CPU. `calibrations`: what runs of engines on it
    said of their constants."""

    schema_id: Literal["helm.hardware/1"] = version("helm.hardware/1")
    name: Name
    memories: Annotated[tuple[Memory, ...], Field(min_length=1, max_length=64)]
    devices: Annotated[tuple[Device, ...], Field(min_length=1, max_length=64)]
    links: Annotated[tuple[Link, ...], Field(max_length=512)] = ()
    sources: dict[Name, Source]
    host: Host | None = None
    between_passes: BetweenPasses | None = Field(default=None, description="of a run, beside its tasks")
    readings: Annotated[tuple[Reading, ...], Field(max_length=4096)] = ()
    tables: Annotated[tuple[OperationTable, ...], Field(max_length=256)] = ()
    disks: Annotated[tuple[DiskReads, ...], Field(max_length=16, exclude_if=empty)] = ()
    calibrations: Annotated[tuple[EngineCalibration, ...], Field(max_length=16, exclude_if=empty)] = ()

    @model_validator(mode="after")
    def _joined(self) -> Self:
        check_names(self)
        for place, memory in enumerate(self.memories):
            if memory.shares is not None and self.memory(memory.shares).shares is not None:
                remedy = "name the physical memory"
                raise mistake("this memory shares itself", remedy, f"memories.{place}.shares", memory.shares)
        return self

    def memory(self, name: str) -> Memory:
        """Return the memory called `name`."""
        return next(memory for memory in self.memories if memory.name == name)

    def device(self, name: str) -> Device:
        """Return the device called `name`."""
        return next(device for device in self.devices if device.name == name)

    def link(self, source: str, target: str) -> Link | None:
        """Return the link from memory `source` to memory `target`, if there is one."""
        return next((ln for ln in self.links if (ln.source_memory, ln.target_memory) == (source, target)), None)
