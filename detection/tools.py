"""Engines on the path, Python packages and disks: what is there, by looking alone."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from helmsman.detection.system import ObservedSystem
from helmsman.schemas.detected import DetectedDisk, DetectedTool

ENGINES = ("llama-cli", "llama-server", "llama-bench", "ollama", "vllm", "sglang", "lms")
"""Programs of engines."""
PACKAGES = (
    *("torch", "transformers", "accelerate", "deepspeed", "llama-cpp-python", "vllm", "nvidia-ml-py"),
    *("aiohttp", "fastapi", "uvicorn", "prometheus-client"),
)
"""Packages that commands or engines use, by the names of their distributions."""
_VIRTUAL = ("vd", "xvd")
_SECTOR = 512


def find_engines(system: ObservedSystem) -> tuple[DetectedTool, ...]:
    """Return the engines' programs on the path."""
    places = ((name, system.program(name)) for name in ENGINES)
    return tuple(DetectedTool(name=name, path=place) for name, place in places if place is not None)


def find_packages(system: ObservedSystem) -> tuple[DetectedTool, ...]:
    """Return the packages that are installed, with their versions; none is imported."""
    versions = ((name, system.package(name)) for name in PACKAGES)
    return tuple(DetectedTool(name=name, version=version[:200]) for name, version in versions if version)


def find_disks(system: ObservedSystem) -> tuple[DetectedDisk, ...]:
    """Return the disks of a Linux system, and the place of the user's folder with what is free there."""
    return (*_disks(system), *_home(system))


def _disks(system: ObservedSystem) -> Iterator[DetectedDisk]:
    home = system.at("/sys/block")
    for folder in sorted(home.iterdir()) if home.is_dir() else ():
        size = system.text(folder / "size").strip()
        if re.match(r"(nvme|sd|vd|xvd|mmcblk)", folder.name) and size.isdecimal() and int(size):
            rotates = system.text(folder / "queue" / "rotational").strip() == "1"
            yield DetectedDisk(name=folder.name, kind=_kind(folder.name, rotates), capacity=_SECTOR * int(size))


def _kind(name: str, rotates: bool) -> Literal["nvme", "ssd", "hdd", "virtual"]:
    if name.startswith("nvme"):
        return "nvme"
    if name.startswith(_VIRTUAL):
        return "virtual"
    return "hdd" if rotates else "ssd"


def _home(system: ObservedSystem) -> Iterator[DetectedDisk]:
    home = system.environment.get("HOME")
    place = Path(home) if home else None
    try:
        usage = shutil.disk_usage(place) if place is not None else None
    except OSError:
        return
    if usage is not None:
        yield DetectedDisk(name="home", kind="unknown", capacity=usage.total, free=usage.free)
