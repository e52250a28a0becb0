"""PCI devices as Linux lists them, and their links."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from helmsman.detection.system import ObservedSystem
from helmsman.schemas.detected import DetectedLink

_GENERATIONS = {"2.5": 1, "5.0": 2, "5": 2, "8.0": 3, "8": 3, "16.0": 4, "16": 4, "32.0": 5, "32": 5, "64.0": 6}
"""Generations of PCIe by their transfers, in GT/s."""
_DISPLAY = "0x03"
_ACCELERATOR = "0x12"


@dataclass(frozen=True, slots=True)
class PciDevice:
    """A device at an address, `vendor:device`, with the folder in which the system describes it."""

    where: str
    number: str
    folder: Path


def graphics_devices(system: ObservedSystem) -> Iterator[PciDevice]:
    """Yield the display controllers and accelerators, by address."""
    home = system.at("/sys/bus/pci/devices")
    for folder in sorted(home.iterdir()) if home.is_dir() else ():
        if system.text(folder / "class").strip()[:4] in (_DISPLAY, _ACCELERATOR):
            vendor, device = (system.text(folder / name).strip().removeprefix("0x") for name in ("vendor", "device"))
            yield PciDevice(folder.name, f"{vendor}:{device}", folder)


def find_link(system: ObservedSystem, device: PciDevice) -> DetectedLink | None:
    """Return the link of a device: the most that both its ends can do, and what it does now."""
    ends = [device.folder, device.folder.resolve().parent]
    generations = [generation_of(system.text(folder / "max_link_speed")) for folder in ends]
    widths = [system.text(folder / "max_link_width").strip() for folder in ends]
    lanes = [int(width) for width in widths if width.isdecimal() and 0 < int(width) <= 32]
    known = [generation for generation in generations if generation is not None]
    if not known or not lanes:
        return None
    now = generation_of(system.text(device.folder / "current_link_speed"))
    return DetectedLink(generation=min(known), lanes=min(lanes), now=now)


def generation_of(text: str) -> int | None:
    """Return the generation of `16.0 GT/s PCIe`, None of what is no speed."""
    stated = re.match(r"([\d.]+) GT/s", text.strip())
    return _GENERATIONS.get(stated[1]) if stated else None
