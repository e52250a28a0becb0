"""Another GPU of the catalogue in a machine: its memory, its figures from data sheet and class, a link as good as both
ends allow, and what joins such GPUs; processors and host memory stay as they were measured."""

from helmsman.hwdb.catalogue import Cpu, Gpu, find_cpu, find_gpu
from helmsman.hwdb.classes import find_class, scaled
from helmsman.hwdb.compose import gpu_device, reserved, video_memory
from helmsman.hwdb.counted_devices import counted
from helmsman.hwdb.links import default_link, link_sources, pcie_links, peer_links
from helmsman.schemas.errors import UsageError
from helmsman.schemas.hardware import Hardware


def gpu_named(text: str) -> tuple[int, Gpu]:
    """Return a number of GPUs, and which: `2x RTX 3090`. Raises UsageError for one that is not known, or that is part
    of a chip."""
    count, name = counted(text.strip(), "gpu", "changes")
    gpu, _ = find_gpu(name)
    if gpu.integrated:
        raise UsageError("a part of a chip is not exchanged", field="changes", value=text, remedy="name a card")
    return count, gpu


def with_gpu(hardware: Hardware, text: str) -> Hardware:
    """Return the machine with GPUs of the catalogue in place of its own, if any. Raises UsageError for one that is not
    known, and for machines whose GPU reads the processors' memory."""
    count, gpu = gpu_named(text)
    source = find_gpu(gpu.name)[1]
    hosts = {device.memory for device in hardware.devices if device.kind == "cpu"}
    away = {device.memory for device in hardware.devices if device.kind != "cpu"}
    if away & hosts:
        raise UsageError("the GPU of this machine is part of its chip", field="changes", value=f"gpu={text}")
    known = find_class(gpu.device_class)
    read = scaled(gpu.bandwidth, known.sustained)
    host = next(device.memory for device in hardware.devices if device.kind == "cpu")
    link = _link(hardware, gpu, count)
    kept = tuple(row for row in hardware.memories if row.name not in away)
    devices = tuple(device for device in hardware.devices if device.kind == "cpu")
    links = tuple(row for row in hardware.links if not {row.source_memory, row.target_memory} & away)
    for number in range(count):
        suffix = str(number) if number else ""
        kept += (video_memory(gpu, f"vram{suffix}", read),)
        devices += (gpu_device(gpu, known, f"{gpu.kind}{suffix}", f"vram{suffix}", read),)
        links += pcie_links(link, host, f"vram{suffix}", suffix)
    between, rate = peer_links([memory.name for memory in kept if memory.kind == "vram"], gpu, None)
    sources = {"gpu": source, "vram-reserve": reserved("vram-reserve"), **known.sources, **link_sources(1), **rate}
    changed = {
        "memories": kept,
        "devices": devices,
        "links": (*links, *between),
        "sources": {**hardware.sources, **sources},
    }
    return hardware.model_copy(update=changed)


def _link(hardware: Hardware, gpu: Gpu, count: int) -> str:
    """Return the name of a link between a machine's processors and a GPU: of those that are known the best that both
    can do, else that of the card."""
    cpu = _cpu(hardware)
    if cpu is not None and cpu.pcie is not None:
        return default_link(gpu, cpu, count)
    assert gpu.pcie is not None, "cards alone are exchanged"
    return f"pcie{gpu.pcie[0]}x{gpu.pcie[1]}"


def _cpu(hardware: Hardware) -> Cpu | None:
    """Return the processor of a machine, where the catalogue has it."""
    product = hardware.devices[0].product
    try:
        return None if product is None else find_cpu(counted(product, "cpu", "hardware")[1])[0]
    except UsageError:
        return None
