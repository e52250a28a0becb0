"""What people call the memories of a machine: RAM, the GPU's, an SSD, instead of names in its record."""

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
    """`RAM`, `GPU`; of several memories of a kind the name in the record says which."""
    name = _MEMORIES[hardware.memory(memory).kind][0]
    return name if _only_of_its_kind(hardware, memory) else f"{name} {memory}"


def memory_place(hardware: Hardware, memory: str) -> str:
    """`in RAM`, `on the GPU`; of several memories of a kind the name in the record says which."""
    place = _MEMORIES[hardware.memory(memory).kind][1]
    return place if _only_of_its_kind(hardware, memory) else f"{place} ({memory})"


def more_room(hardware: Hardware, missing: Iterable[tuple[str, int]]) -> str:
    """`298.89 MB more in RAM and 119.65 GB more on the GPU`, of pairs of a memory and bytes that it lacks."""
    return " and ".join(f"{format_bytes(size)} more {memory_place(hardware, memory)}" for memory, size in missing)


def _only_of_its_kind(hardware: Hardware, memory: str) -> bool:
    return [other.kind for other in hardware.memories].count(hardware.memory(memory).kind) == 1
