"""The record of a machine that was looked at and not measured: its parts are found in the catalogue."""

import re
from collections import Counter
from dataclasses import dataclass, replace

from helmsman.hwdb.catalogue import Cpu, Gpu, find_cpu, find_gpu
from helmsman.hwdb.compose import GIB, Parts, assumed_parts, joined
from helmsman.hwdb.core_reads import CORE_READS, CORE_READS_SOURCE, read_by
from helmsman.hwdb.counted_devices import MAX_EQUAL
from helmsman.hwdb.unlisted_cpu import unlisted_cpu
from helmsman.schemas.detected import DetectedGpu, DetectedMachine
from helmsman.schemas.errors import HardwareUnavailableError, UsageError
from helmsman.schemas.figures import Figure, Source
from helmsman.schemas.hardware import Device, Hardware, Memory
from helmsman.schemas.units import format_bytes, format_rate

USABLE = 0.9
"""The share of free memory that a plan may use, as of profiles."""
_LANES = (1, 2, 4, 8, 16)


@dataclass(frozen=True, slots=True)
class FoundHardware:
    """A record, and what of it is taken for granted, a line for each thing."""

    hardware: Hardware
    assumed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Accelerators:
    """Equal GPUs of a machine, as the catalogue has them; what is left out or assumed."""

    gpu: Gpu | None
    source: Source | None
    devices: tuple[DetectedGpu, ...]
    assumed: tuple[str, ...]


def hardware_of(machine: DetectedMachine) -> FoundHardware:
    """Return the record of a machine as it was found, named `this`. Raises HardwareUnavailableError with less than
    1 GiB of memory."""
    if machine.memory.allowed < GIB:
        size = format_bytes(machine.memory.allowed)
        remedy = "allow this process more, or plan for another machine with `hardware`"
        raise HardwareUnavailableError(f"{size} of memory are too few", field="hardware", value="this", remedy=remedy)
    cpu, source, assumed = _processor(machine)
    accelerators = _accelerators(machine, cpu)
    parts, notes = _parts(machine, cpu, accelerators)
    hardware = joined(parts, cpu, source, accelerators.gpu, accelerators.source)
    hardware, slower = _by_cores(hardware, machine, cpu)
    told = (*assumed, *accelerators.assumed, *notes, *assumed_parts(hardware), *slower)
    return FoundHardware(_with_free(hardware, machine, accelerators), told)


def _processor(machine: DetectedMachine) -> tuple[Cpu, Source, tuple[str, ...]]:
    """Return the processor with the cores that this process may use, of all sockets evenly."""
    seen = machine.processor
    usable = _usable_cores(machine)
    assumed = tuple[str, ...]()
    try:
        cpu, source = find_cpu(seen.name)
    except UsageError:
        cpu, source = unlisted_cpu(seen.model_copy(update={"cores": usable}))
        memory = f"{cpu.channels} channels of {cpu.memory}"
        assumed = (f"{seen.name} is not in the catalogue: taken for a {cpu.device_class} with {memory}",)
    cores = max(1, -(-usable // seen.sockets))
    if cores < cpu.cores:
        cpu = replace(cpu, pipes=_first(cpu.pipes, cores))
    return cpu, source, assumed


def _usable_cores(machine: DetectedMachine) -> int:
    quota = machine.quota
    cores = machine.processor.cores
    return max(1, cores if quota is None else min(cores, -int(-quota // 1)))


def _first(pipes: tuple[tuple[int, int], ...], count: int) -> tuple[tuple[int, int], ...]:
    """Return the first `count` cores, the fast ones."""
    kept = list[tuple[int, int]]()
    for cores, width in pipes:
        taken = min(cores, count)
        count -= taken
        if taken:
            kept.append((taken, width))
    return tuple(kept)


def _accelerators(machine: DetectedMachine, cpu: Cpu) -> _Accelerators:
    """Return the GPUs that a plan can use: those of one kind that have most memory together."""
    assumed, usable = list[str](), list[tuple[str, DetectedGpu]]()
    for seen in machine.gpus:
        names = [name for name in seen.devices if _belongs(find_gpu(name)[0], cpu)]
        if not names:
            assumed.append(f"{seen.name} is left out: {_why_unknown(seen)}")
            continue
        name = min(names, key=lambda one: find_gpu(one)[0].bandwidth)
        if len(names) > 1:
            assumed.append(f"{seen.name} may be {' or '.join(names)}: taken for {name}, the slower")
        usable.append((name, seen))
    if not usable:
        return _Accelerators(None, None, (), tuple(assumed))
    counts = Counter(name for name, _ in usable)
    chosen = max(counts, key=lambda name: _rank(find_gpu(name)[0], counts[name]))
    others = [seen.name for name, seen in usable if name != chosen]
    if others:
        assumed.append(f"{', '.join(others)} left out beside {chosen}: plans are for GPUs of one kind")
    gpu, source = find_gpu(chosen)
    equal = tuple(one for name, one in usable if name == chosen)[: 1 if gpu.integrated else MAX_EQUAL]
    return _Accelerators(gpu, source, equal, tuple(assumed))


def _rank(gpu: Gpu, count: int) -> tuple[bool, int]:
    """Cards go before what is in the processor's chip, then most memory."""
    return not gpu.integrated, gpu.capacity * count


def _belongs(gpu: Gpu, cpu: Cpu) -> bool:
    return gpu.name in cpu.graphics if gpu.integrated else cpu.pcie is not None


def _why_unknown(gpu: DetectedGpu) -> str:
    if not gpu.devices:
        return "the catalogue has no GPU of this name and memory"
    return "the catalogue does not know it in this processor"


def _parts(machine: DetectedMachine, cpu: Cpu, accelerators: _Accelerators) -> tuple[Parts, tuple[str, ...]]:
    """Return the parts with their memory and links as found."""
    assumed = list[str]()
    modules, sockets = machine.memory.modules, machine.processor.sockets
    memory, channels = None, None
    if modules is not None and re.fullmatch(r"(?:LP)?DDR\dX?-\d{3,5}", modules.kind):
        memory = modules.kind
        channels = None if memory.startswith("LP") else min(modules.channels, cpu.channels * sockets)
    elif accelerators.gpu is None or not accelerators.gpu.integrated:
        assumed.append(f"memory modules cannot be read: {cpu.channels * sockets} channels of {cpu.memory}, all filled")
    link = _link(accelerators, assumed)
    count = max(1, len(accelerators.devices))
    gpu = None if accelerators.gpu is None else accelerators.gpu.name
    ram = machine.memory.allowed
    known = memory is not None
    parts = Parts("this", cpu.name, ram, gpu, count, link, sockets, memory, channels, memory_known=known)
    return parts, tuple(assumed)


def _link(accelerators: _Accelerators, assumed: list[str]) -> str | None:
    """Return the narrowest link of the GPUs as they and their slots can do it; None where nobody says."""
    if accelerators.gpu is None or accelerators.gpu.integrated:
        return None
    links = [gpu.link for gpu in accelerators.devices if gpu.link is not None and gpu.link.lanes in _LANES]
    if not links:
        assumed.append("no link is stated: the best that processor and GPU can do")
        return None
    slowest = min(links, key=lambda link: (2 ** (link.loaded or link.generation) * link.lanes, link.lanes))
    generation = min(slowest.loaded or slowest.generation, 6)
    if slowest.loaded is None and slowest.now is not None and slowest.now < slowest.generation:
        assumed.append(f"PCIe {generation} x{slowest.lanes} under load; idle, the link is at generation {slowest.now}")
    return f"pcie{generation}x{slowest.lanes}"


def _by_cores(hardware: Hardware, machine: DetectedMachine, cpu: Cpu) -> tuple[Hardware, tuple[str, ...]]:
    """Return the machine whose processor reads no faster than its usable cores do."""
    host = hardware.devices[0]
    figure = read_by(_usable_cores(machine), cpu.device_class)
    if figure.value >= host.read.value:
        return hardware, ()
    device = host.model_copy(update={"read": figure})
    memories = tuple(_slower(memory, host, figure) for memory in hardware.memories)
    sources = {**hardware.sources, CORE_READS: CORE_READS_SOURCE}
    changed = {"devices": (device, *hardware.devices[1:]), "memories": memories, "sources": sources}
    return hardware.model_copy(update=changed), (
        f"{_usable_cores(machine)} cores read {format_rate(figure.value)}, within a factor of 2.5",
    )


def _slower(memory: Memory, host: Device, figure: Figure) -> Memory:
    """Return the host's own memory as its processor reads it; one that a GPU reads too stays."""
    own = memory.name == host.memory and memory.kind == "dram"
    return memory.model_copy(update={"bandwidth": figure}) if own else memory


def _with_free(hardware: Hardware, machine: DetectedMachine, accelerators: _Accelerators) -> Hardware:
    """Return the machine whose memories offer what is free in them now."""
    free = {hardware.devices[0].memory: machine.memory.free}
    cards = [memory.name for memory in hardware.memories if memory.kind == "vram"]
    stated = zip(cards, accelerators.devices, strict=False)
    free |= {name: gpu.free for name, gpu in stated if gpu.free is not None}
    memories = tuple(
        memory.model_copy(
            update={"available": min(memory.available, int(USABLE * free[memory.name])), "source": "free"}
        )
        if free.get(memory.name)
        else memory
        for memory in hardware.memories
    )
    where = f"free when the machine was looked at, less {1 - USABLE:.0%}"
    sources = {**hardware.sources, "free": Source(kind="measured", where=where)}
    return hardware.model_copy(update={"name": "this", "memories": memories, "sources": sources})
