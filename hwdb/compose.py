"""Machines put together from known devices: `--gpu '2x NAME' --cpu NAME --ram 64GB --memory '2x DDR5-6000' --link
pcie4x16`."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from helmsman.hwdb.catalogue import Cpu, Gpu, find_cpu, find_gpu, read_catalogue
from helmsman.hwdb.classes import DeviceClass, find_class, scaled
from helmsman.hwdb.counted_devices import counted
from helmsman.hwdb.links import FABRIC, default_link, far_links, link_sources, node_links, pcie_links, peer_links
from helmsman.schemas.errors import UsageError
from helmsman.schemas.figures import Figure, Source
from helmsman.schemas.hardware import Compute, Device, Hardware, Link, Memory
from helmsman.schemas.units import format_rate

GIB = 2**30
MAX_RAM = 64 * 2**40
MIN_PEER, MAX_PEER = 1e6, 1e13
"""Bytes/s a direction between two GPUs."""
RESERVES = {
    "vram-reserve": "assumed: capacity less the larger of 0.6 GiB and 7 % for driver and context",
    "ram-reserve": "assumed: capacity less 12.5 %, at least 2 GiB and at most 8 GiB, for the system",
    "unified-reserve": "assumed: three quarters of unified memory may be wired for the GPU",
    "metal-reserve": "assumed: Metal's recommendedMaxWorkingSetSize in logs: 2/3 up to 32 GiB "
    "(abetlen/llama-cpp-python#687, ollama/ollama#434), 3/4 above (ggml-org/llama.cpp#1870); macOS 26 has more "
    "(antirez/ds4#893)",
}
_METAL_SMALL = 32 * GIB
"""Up to how many bytes Metal lets the GPU have two thirds of a memory; of more it has three quarters."""
OWN_GPU = "own-gpu"
"""The source that says that the GPU in the CPU's chip is left out."""
_CPU_FLOPS = "cpu-flops"
MEMORY_SPEED = "memory-speed"
"""The source of reads from memory whose kind and channels nobody stated."""
_UNSTATED = 0.6, 1.15
"""Low and high end of such reads, as shares of those with the CPU's own memory in all channels: of two channels one may
be empty, kinds may be slower by a seventh, modules that run above the standard faster by as much (assumed)."""
_MODULES = re.compile(r"^(?:(\d{1,2})x[ -]*)?((?:LP)?DDR\dX?-\d{3,5})$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts that a machine is made of. `ram`: bytes; `memory`: DDR4-3200, default the CPU's; `channels` of all
    sockets; `memory_known`: whether default ones are those of the machine.

    `peer`: bytes/s a direction between every two GPUs, which else go through what joins them on their boards, if there
    is such a thing, or through host memory. `nodes`: NUMA nodes that share RAM, channels and sockets evenly, the GPUs
    divided among them; `between` them: bytes/s a direction."""

    name: str
    cpu: str
    ram: int
    gpu: str | None = None
    gpus: int = 1
    link: str | None = None
    sockets: int = 1
    memory: str | None = None
    channels: int | None = None
    peer: float | None = None
    nodes: int = 1
    between: float | None = None
    memory_known: bool = True


def compose(
    gpu: str | None, cpu: str | None, ram: int, link: str | None, peer: float | None = None, memory: str | None = None
) -> Hardware:
    """Return a machine from device names, bytes of RAM and a link name; figures from data sheets and device classes.

    A chip with a GPU of its own, and no slot for another (Apple's), is named by either; of other CPUs `gpu` None means
    the CPU alone, though its chip may have a GPU. `2x NAME`, or `NAME, NAME`: two of them, sockets too, whose memory is
    then one, interleaved. `link` of each GPU, None: the best both ends can do. `peer`: as in `Parts`; `memory`: its
    kind, and the channels that are filled, as in `2x DDR5-6000`; None: the CPU's own, with a wide interval. Raises
    UsageError."""
    gpus, gpu = (1, None) if gpu is None else counted(gpu, "gpu", "gpu")
    sockets, cpu = (1, None) if cpu is None else counted(cpu, "cpu", "cpu")
    gpu, cpu = _of_one_chip(gpu, cpu)
    named = ((gpus, gpu), (sockets, cpu))
    name = "-".join((f"{count}x{part}" if count > 1 else part).lower() for count, part in named if part)
    printable = "".join(letter for letter in name if letter.isprintable() and letter != " ")
    kind, channels = (None, None) if memory is None else _modules(memory)
    parts = Parts(
        printable[:200], cpu, ram, gpu, gpus, link, sockets, kind, channels, peer, memory_known=memory is not None
    )
    if peer is not None and gpus == 1:
        remedy = "leave `peer` out, or write `gpu` 2x NAME"
        raise UsageError("joins several GPUs, and this machine has not as many", field="peer", remedy=remedy)
    if peer is not None and not MIN_PEER <= peer <= MAX_PEER:
        remedy = "write a rate such as 56GB/s"
        raise UsageError("not a rate between GPUs", field="peer", value=peer, remedy=remedy)
    hardware = assemble(parts)
    own = () if gpu is not None else find_cpu(cpu)[0].graphics
    if not own:
        return hardware
    left_out = f"the chip's own GPU, {' or '.join(own)}, is left out: name it as `gpu` to plan with it"
    sources = {**hardware.sources, OWN_GPU: Source(kind="assumed", where=left_out)}
    return hardware.model_copy(update={"sources": sources})


def assumed_parts(hardware: Hardware) -> Iterator[str]:
    """Yield what nobody stated of the GPUs of a machine that is made of parts, a line for each thing."""
    fabric = next((link for link in hardware.links if link.bandwidth.source == FABRIC), None)
    if fabric is not None:
        rate = format_rate(fabric.bandwidth.value)
        yield f"{rate} a direction between every two GPUs: {hardware.sources[FABRIC].where}"
    if OWN_GPU in hardware.sources:
        yield hardware.sources[OWN_GPU].where


def _of_one_chip(gpu: str | None, cpu: str | None) -> tuple[str | None, str]:
    """Return the names of a machine's GPU and CPU, where one need not be named as both are in one chip. Raises
    UsageError where that leaves one open."""
    if cpu is None:
        graphics = None if gpu is None else find_gpu(gpu)[0].name
        chips = [row["name"] for row in read_catalogue("cpus")["cpus"] if graphics in row.get("graphics", ())]
        if len(chips) == 1:
            return gpu, chips[0]
        remedy = f"name it as the `cpu`: {' or '.join(chips) or 'AMD Ryzen 7 5800X, for example'}"
        raise UsageError("the machine's CPU is not named", field="cpu", remedy=remedy)
    chip = find_cpu(cpu)[0] if gpu is None else None
    if chip is None or chip.pcie is not None or not chip.graphics:
        return gpu, cpu
    if len(chip.graphics) > 1:
        remedy = f"name it as the `gpu`: {' or '.join(chip.graphics)}"
        raise UsageError(f"{chip.name} comes with one of several GPUs", field="gpu", remedy=remedy)
    return chip.graphics[0], cpu


def _modules(text: str) -> tuple[str, int | None]:
    """Return the kind and the channels of `2x DDR5-6000`; of DDR5-6000 alone all channels. Raises UsageError."""
    match = _MODULES.match(text.strip())
    if match is None or match[1] == "0":
        remedy = "write its kind, as DDR5-6000, or with the channels that are filled, as 2x DDR5-6000"
        raise UsageError("not a kind of memory", field="memory", value=text, remedy=remedy)
    return match[2].upper(), int(match[1]) if match[1] else None


def assemble(parts: Parts) -> Hardware:
    """Return the machine made of `parts`. Raises UsageError for unknown devices and links, or parts that do not fit."""
    if not GIB <= parts.ram <= MAX_RAM:
        remedy = "write a size such as 64GB"
        raise UsageError("RAM must be between 1 GiB and 64 TiB", field="ram", value=parts.ram, remedy=remedy)
    return joined(parts, *find_cpu(parts.cpu), *(find_gpu(parts.gpu) if parts.gpu is not None else (None, None)))


def joined(
    parts: Parts, cpu: Cpu, cpu_source: Source, gpu: Gpu | None = None, gpu_source: Source | None = None
) -> Hardware:
    """Return the machine made of `parts`, whose devices are these, whatever they are called there. Raises UsageError
    for parts that do not fit."""
    if parts.link and (gpu is None or gpu.integrated):
        remedy = "leave `link` out"
        raise UsageError("nothing is behind a link in this machine", field="link", value=parts.link, remedy=remedy)
    if gpu is None or gpu_source is None:
        return _document(parts, *_host(parts, cpu, cpu_source, None))
    if (gpu.name not in cpu.graphics) if gpu.integrated else cpu.pcie is None:
        own = " or ".join(cpu.graphics)
        remedy = f"name {own}, which is in this chip, or another CPU" if own else "name the CPU in whose chip it is"
        raise UsageError("a GPU within a CPU comes in one chip only", field="cpu", value=cpu.name, remedy=remedy)
    if gpu.integrated and parts.gpus > 1:
        raise UsageError("a chip has one GPU", field="gpu", value=parts.gpus, remedy=f"write {gpu.name}")
    if gpu.integrated and parts.sockets > 1:
        problem = f"{gpu.name} is in a chip that stands alone"
        raise UsageError(problem, field="cpu", value=parts.sockets, remedy=f"write {cpu.name}")
    if gpu.integrated and parts.memory is not None:
        problem = f"its CPU and {gpu.name} share a memory that the catalogue knows"
        raise UsageError(problem, field="memory", value=parts.memory, remedy="leave `memory` out")
    if gpu.integrated:
        return _unified(parts, cpu, cpu_source, gpu, gpu_source)
    return _discrete(parts, cpu, cpu_source, gpu, gpu_source)


def override(hardware: Hardware, vram_available: int | None, ram_available: int | None) -> Hardware:
    """Return the machine with other bytes available (E-HELM-07): every accelerator's memory and the host's.

    Raises UsageError beyond a memory's capacity, when there is no GPU, and for both on one unified memory."""
    host = hardware.devices[0].memory
    if vram_available is not None:
        accelerators = [device.memory for device in hardware.devices if device.kind != "cpu"]
        if not accelerators:
            remedy = "leave `vram_available` out"
            raise UsageError("this machine has no GPU", field="vram_available", value=vram_available, remedy=remedy)
        if host in accelerators and ram_available is not None:
            problem = f"CPU and GPU share the memory {host}, which `vram_available` gives a size already"
            raise UsageError(problem, field="ram_available", value=ram_available, remedy="give one of the two")
        for name in dict.fromkeys(accelerators):
            hardware = _with_available(hardware, name, vram_available, "vram_available")
    if ram_available is not None:
        hardware = _with_available(hardware, host, ram_available, "ram_available")
    return hardware


_GIVEN = {"vram_available": "--vram-avail on the command line", "ram_available": "--ram-avail on the command line"}
"""The sources that records name for bytes that a user allows, by option."""


def _with_available(hardware: Hardware, name: str, available: int, field: str) -> Hardware:
    capacity = hardware.memory(name).capacity
    if not 0 < available <= capacity:
        remedy = f"write a size from 1 to the {capacity} bytes of {name}"
        raise UsageError("not within the memory", field=field, value=available, remedy=remedy)
    given = f"given-{name}"
    memories = tuple(
        memory.model_copy(update={"available": available, "free": None, "source": given})
        if memory.name == name
        else memory
        for memory in hardware.memories
    )
    sources = {**hardware.sources, given: Source(kind="user", where=_GIVEN[field])}
    return hardware.model_copy(update={"memories": memories, "sources": sources})


_Built = tuple[tuple[Memory, ...], tuple[Device, ...], tuple[Link, ...], dict[str, Source]]


def _document(
    parts: Parts,
    memories: tuple[Memory, ...],
    devices: tuple[Device, ...],
    links: tuple[Link, ...],
    sources: dict[str, Source],
) -> Hardware:
    return Hardware(name=parts.name, memories=memories, devices=devices, links=links, sources=sources)


def _discrete(parts: Parts, cpu: Cpu, cpu_source: Source, gpu: Gpu, gpu_source: Source) -> Hardware:
    """GPUs with memories of their own behind PCIe."""
    memories, devices, links, sources = _host(parts, cpu, cpu_source, None)
    hosts, known = [memory.name for memory in memories], find_class(gpu.device_class)
    link = parts.link or default_link(gpu, cpu, parts.gpus)
    read = scaled(gpu.bandwidth, known.sustained)
    for number in range(parts.gpus):
        suffix = str(number) if number else ""
        name, near = f"vram{suffix}", hosts[number * parts.nodes // parts.gpus]
        memories += (video_memory(gpu, name, read),)
        devices += (gpu_device(gpu, known, f"{gpu.kind}{suffix}", name, read),)
        own = pcie_links(link, near, name, suffix)
        links += (*own, *(far_link for host in hosts if host != near for far_link in far_links(own, host)))
    between, rate = peer_links([memory.name for memory in memories if memory.kind == "vram"], gpu, parts.peer)
    extra = {"gpu": gpu_source, "vram-reserve": reserved("vram-reserve"), **known.sources, **link_sources(parts.nodes)}
    return _document(parts, memories, devices, (*links, *between), {**sources, **rate, **extra})


def video_memory(gpu: Gpu, name: str, read: Figure) -> Memory:
    """Return the memory of a card."""
    reserve = max(round(0.6 * GIB), round(0.07 * gpu.capacity))
    return Memory(
        name=name,
        kind="vram",
        product=gpu.name,
        capacity=gpu.capacity,
        available=gpu.capacity - reserve,
        bandwidth=read,
        source="vram-reserve",
    )


def _unified(parts: Parts, cpu: Cpu, cpu_source: Source, gpu: Gpu, gpu_source: Source) -> Hardware:
    """Return a chip whose CPU and GPU read one memory."""
    known = find_class(gpu.device_class)
    read = scaled(gpu.bandwidth, known.sustained)
    memories, devices, links, sources = _host(parts, cpu, cpu_source, gpu)
    shared = memories[0].model_copy(update={"bandwidth": read, "product": gpu.name})
    within = gpu_device(gpu, known, gpu.kind, shared.name, read)
    return _document(parts, (shared,), (*devices, within), links, {**sources, "gpu": gpu_source, **known.sources})


def gpu_device(gpu: Gpu, known: DeviceClass, name: str, memory: str, read: Figure) -> Device:
    """Return a GPU that reads a memory."""
    peak = Figure(value=gpu.flops, p10=gpu.flops, p90=gpu.flops, source="gpu")
    return Device(
        name=name,
        kind=gpu.kind,
        product=gpu.name,
        device_class=gpu.device_class,
        memory=memory,
        read=read,
        compute=_phases(peak),
        efficiency=known.efficiency,
        launch=known.launch,
        overhead=known.overhead,
    )


def _host(parts: Parts, cpu: Cpu, cpu_source: Source, within: Gpu | None) -> _Built:
    """Return the CPU and its memory, of every NUMA node; `within`: the GPU that shares it."""
    known = find_class(cpu.device_class)
    kind = parts.memory or cpu.memory
    channels = (parts.channels or cpu.channels * parts.sockets) // parts.nodes
    ram, sockets = parts.ram // parts.nodes, parts.sockets // parts.nodes
    most = cpu.channels * parts.sockets // parts.nodes
    if parts.channels is not None and not 1 <= channels <= most:
        remedy = f"{cpu.name} has {most} channels"
        raise UsageError("more channels of memory than there are", field="memory", value=parts.channels, remedy=remedy)
    peak = within.bandwidth if within else channels * 8 * _transfers(kind)
    read = scaled(peak, known.sustained)
    if within is None and not parts.memory_known:
        read = _doubted(read)
    name: Literal["dram", "unified"] = "unified" if within else "dram"
    available, reserve = (ram - _ram_reserve(ram), "ram-reserve") if within is None else _shared(ram, within)
    memory = Memory(
        name=name,
        kind=name,
        product=f"{kind}, {channels} channels",
        capacity=ram,
        available=available,
        bandwidth=read,
        source=reserve,
    )
    device = _cpu_device(cpu, sockets, known, name, read)
    suffixes = [str(node) if node else "" for node in range(parts.nodes)]
    sources = {
        "cpu": cpu_source,
        memory.source: reserved(memory.source),
        _CPU_FLOPS: Source(kind="datasheet", where=_flops_formula(cpu, sockets)),
        **known.sources,
    }
    if read.source == MEMORY_SPEED:
        sources[MEMORY_SPEED] = Source(kind="assumed", where=_assumed_memory(kind, channels))
    memories = tuple(memory.model_copy(update={"name": name + end}) for end in suffixes)
    devices = tuple(device.model_copy(update={"name": "cpu" + end, "memory": name + end}) for end in suffixes)
    links = node_links([memory.name for memory in memories], parts.between) if parts.between else ()
    return memories, devices, links, sources


def _doubted(read: Figure) -> Figure:
    """Return reads from memory of which nobody said how it is filled."""
    low, high = (share * read.value for share in _UNSTATED)
    return Figure(value=read.value, p10=min(read.p10, low), p90=max(read.p90, high), source=MEMORY_SPEED)


def _assumed_memory(kind: str, channels: int) -> str:
    return (
        f"assumed: {channels} channels of {kind}, all filled; nobody said so: state the memory for a narrower interval"
    )


def _cpu_device(cpu: Cpu, sockets: int, known: DeviceClass, memory: str, read: Figure) -> Device:
    cycle = float(sockets * cpu.flops_per_cycle)
    low, high = cycle * cpu.base_hz, cycle * cpu.boost_hz
    peak = Figure(value=(low + high) / 2, p10=low, p90=high, source=_CPU_FLOPS)
    return Device(
        name="cpu",
        kind="cpu",
        product=cpu.name if sockets == 1 else f"{sockets}x {cpu.name}",
        device_class=cpu.device_class,
        memory=memory,
        cores=sockets * cpu.cores,
        isa=cpu.isa,
        read=read,
        compute=_phases(peak),
        efficiency=known.efficiency,
        launch=known.launch,
        overhead=known.overhead,
        cache_bytes=sockets * cpu.cache_bytes,
    )


def _phases(peak: Figure) -> tuple[Compute, ...]:
    return Compute(phase="prefill", flops=peak), Compute(phase="decode", flops=peak)


def _flops_formula(cpu: Cpu, sockets: int) -> str:
    pipes = " + ".join(f"{sockets * cores} cores x {width}" for cores, width in cpu.pipes)
    return f"derived: ({pipes}) FP32 FLOP per cycle x {cpu.base_hz / 1e9:g}..{cpu.boost_hz / 1e9:g} GHz, middle of both"


def reserved(name: str) -> Source:
    """Return where the bytes come from that plans leave to others."""
    return Source(kind="assumed", where=RESERVES[name])


def _shared(ram: int, gpu: Gpu) -> tuple[int, str]:
    """Return the bytes that a GPU may have of the memory that it shares, and the name of their source."""
    if gpu.kind == "metal":
        return ram * 2 // 3 if ram <= _METAL_SMALL else ram * 3 // 4, "metal-reserve"
    return ram * 3 // 4, "unified-reserve"


def _ram_reserve(ram: int) -> int:
    return min(max(ram // 8, 2 * GIB), 8 * GIB, ram // 2)


def _transfers(kind: str) -> float:
    """Transfers/s of `DDR4-3200` and the like."""
    match = re.match(r"^(?:LP)?DDR\dX?-(\d{3,5})$", kind)
    if match is None:
        raise UsageError("unknown kind of memory", value=kind, remedy="write for example DDR5-5600")
    return float(match[1]) * 1e6
