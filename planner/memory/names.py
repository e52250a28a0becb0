"""Names of memories for readers: RAM, GPU or SSD in place of the names that a machine record has."""

from collections.abc import Iterable

from helmsman.schemas.hardware import Hardware
from helmsman.schemas.units import format_bytes

_MEMORIES = {
    "dram": ("RAM", "in RAM"),
    "vram": ("GPU", "on the GPU"),
    "unified": ("shared memory", "in the shared memory"),
    "loopback": ("accelerator", "on the accelerator"),
    "optane": ("Optane", "in Optane"),
    "cxl": ("CXL memory", "in CXL memory"),
    "nvme": ("SSD", "on the SSD"),
}
"""By kind of memory, its name, and where what is in it is."""


def memory_name(hardware: Hardware, memory: str) -> str:
    """Return what a memory is called: `RAM`, `GPU`; of several of a kind with the name in the record."""
    name = _MEMORIES[hardware.memory(memory).kind][0]
    return name if _only_of_its_kind(hardware, memory) else f"{name} {memory}"


def memory_place(hardware: Hardware, memory: str) -> str:
    """Return where something in a memory is: `in RAM`, `on the GPU`; of several of a kind with the record's name."""
    place = _MEMORIES[hardware.memory(memory).kind][1]
    return place if _only_of_its_kind(hardware, memory) else f"{place} ({memory})"


def room_in_words(hardware: Hardware, missing: Iterable[tuple[str, int]]) -> str:
    """Say how much more is needed where, `298.89 MB more in RAM and 119.65 GB more on the GPU`; `missing`: memories
    and the bytes that each lacks."""
    return " and ".join(f"{format_bytes(size)} more {memory_place(hardware, memory)}" for memory, size in missing)


def _only_of_its_kind(hardware: Hardware, memory: str) -> bool:
    return [other.kind for other in hardware.memories].count(hardware.memory(memory).kind) == 1
