"""The machine of a row, of devices of the catalogue, with the memory that its source states."""

import re
from dataclasses import replace

from benchmarks.strangers.rows import OpenRow, UnansweredError
from helmsman.hwdb.compose import GIB, Parts, assemble, override
from helmsman.schemas.errors import HelmError
from helmsman.schemas.figures import Figure, Source
from helmsman.schemas.hardware import Device, Hardware, Memory

_ANY = "AMD Ryzen 9 7950X"
"""Stands for a processor that has nothing to do."""
_ALIASES = {"Intel Xeon QYFS ES": "Intel Xeon Platinum 8480+", "64-core EPYC Rome": "AMD EPYC 7742"}
"""Processors of the catalogue by what rows call them: a sample of that one, as the row says, and the usual one of that
many cores and that year."""
_NOTHING = ("", "none (CPU only)")
_UNSTATED = re.compile(
    r"^not |^one consumer|^x86|^dual-socket|^single socket|^56-core|^datacentre|not named|unnamed",
    re.IGNORECASE,
)
_KIND = re.compile(r"DDR[45]-\d{4}")
_CHANNELS = re.compile(r"(\d+)[- ]channel|(\d+)x\d+ ?GB")
_FEW = {"dual": 2, "quad": 4}
_LINK = re.compile(r"PCIe (?:gen)?(\d)(?:\.0)?(?: x(\d+))?", re.IGNORECASE)
_COUNT = re.compile(r"^(\d)x (.+)$")
_SPREAD = 0.03
"""The relative spread of a bandwidth that a source measured, around that of a run (assumed)."""


def machine_of(row: OpenRow, ram: int, idle: bool = False) -> Hardware:
    """Return the machine with `ram` bytes for models; `idle`: whether its processor has nothing to do, so that any
    stands for one that is not stated. Raises UnansweredError where a device is not stated or not known."""
    for what, text in (("accelerator", row.gpu), ("processor", row.cpu)):
        if what == "processor" and (not text or _UNSTATED.search(text)):
            if not idle:
                raise UnansweredError("the processor is not stated")
            row = replace(row, cpu=_ANY)
        elif _UNSTATED.search(text):
            raise UnansweredError(f"the {what} is not stated")
    names = [] if row.gpu in _NOTHING or row.gpu.startswith("none") else [_plain(part) for part in row.gpu.split(" + ")]
    try:
        hardware = _assembled(row, names, ram)
    except HelmError as error:
        raise UnansweredError(f"{error.field} {error.value}: {error.message}") from None
    if row.ram_bw_gbs:
        hardware = _measured(hardware, float(row.ram_bw_gbs) * 1e9)
    return hardware


def _assembled(row: OpenRow, gpus: list[str], ram: int) -> Hardware:
    sockets, cpu = _counted(_plain(row.cpu))
    cpu = _ALIASES.get(cpu, cpu)
    kind, channels = _KIND.search(row.ram_type), _channels(row.ram_type)
    stated = kind[0] if kind else None
    parts = Parts("stranger", cpu, ram, None, 1, None, sockets, stated, channels, memory_known=kind is not None)
    if not gpus:
        return assemble(parts)
    link = _LINK.search(row.gpu)
    lane = f"pcie{link[1]}x{link[2] or 16}" if link else None
    count, first = _counted(gpus[0])
    whole = assemble(replace(parts, gpu=first, gpus=max(count, len(gpus)), link=lane))
    for number, name in enumerate(gpus[1:], 1):
        whole = _with_gpu(whole, number, assemble(replace(parts, gpu=name, link=lane)))
    if len(gpus) == count == 1 and "free VRAM" in row.gpu:
        whole = override(whole, round(float(row.vram_gb or 0) * GIB), None)
    return whole


def _with_gpu(whole: Hardware, number: int, other: Hardware) -> Hardware:
    """Return the machine whose GPU of that number is the one of another machine."""
    names = f"vram{number}"
    memories = tuple(
        other.memory("vram").model_copy(update={"name": names}) if memory.name == names else memory
        for memory in whole.memories
    )
    kind = next(device for device in other.devices if device.memory == "vram")
    devices = tuple(
        kind.model_copy(update={"name": device.name, "memory": names}) if device.memory == names else device
        for device in whole.devices
    )
    sources = {**other.sources, **whole.sources}
    return whole.model_copy(update={"memories": memories, "devices": devices, "sources": sources})


def _measured(hardware: Hardware, rate: float) -> Hardware:
    """Return the machine whose processors read as fast as the source measured."""
    figure = Figure(value=rate, p10=rate * (1 - _SPREAD), p90=rate * (1 + _SPREAD), source="stated")
    host = hardware.devices[0].memory

    def memory_of(memory: Memory) -> Memory:
        return memory.model_copy(update={"bandwidth": figure}) if memory.name == host else memory

    def device_of(device: Device) -> Device:
        return device.model_copy(update={"read": figure}) if device.kind == "cpu" else device

    sources = {**hardware.sources, "stated": Source(kind="measured", where="measured by the source of the row")}
    memories, devices = tuple(map(memory_of, hardware.memories)), tuple(map(device_of, hardware.devices))
    return hardware.model_copy(update={"memories": memories, "devices": devices, "sources": sources})


def _plain(text: str) -> str:
    """Return a device's name without what sources say beside."""
    return re.sub(r"\(.*?\)|,.*$|NVIDIA |Max-Q | in a VM", "", text).strip()


def _counted(text: str) -> tuple[int, str]:
    matched = _COUNT.match(text)
    return (int(matched[1]), matched[2]) if matched else (1, text)


def _channels(text: str) -> int | None:
    matched = _CHANNELS.search(text)
    if matched:
        return int(matched[1] or matched[2])
    return next((count for word, count in _FEW.items() if word in text), None)
