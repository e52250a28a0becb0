"""GPUs: NVIDIA's by their driver, AMD's and Intel's by the system's files, Apple's by system_profiler."""

import json
import re
from collections.abc import Mapping
from typing import Any, Literal

from helmsman.detection.cuda_driver import with_driver
from helmsman.detection.nvidia import nvidia_gpus
from helmsman.detection.pcie import PciDevice, find_link, graphics_devices
from helmsman.detection.system import ObservedSystem
from helmsman.hwdb.catalogue import reported_gpus
from helmsman.schemas.detected import DetectedGpu, DetectedProblem

NVIDIA, AMD, INTEL = "10de", "1002", "8086"
"""Vendors' numbers in PCI."""
_CAPACITY = ("mem_info_vram_total", "tile0/physical_vram_size_bytes", "tile0/vram0/size", "lmem_total_bytes")
"""Files with the bytes of a GPU's memory: of amdgpu, xe, and i915."""
_PRODUCT_KEYS = ("Card Series", "Card series", "Card Model", "Market Name")
"""Under which rocm-smi has names, by its version."""


def find_gpus(system: ObservedSystem) -> tuple[list[DetectedGpu], list[DetectedProblem]]:
    """Return the GPUs of a system, and what is wrong with those that are there and do not answer."""
    if system.name == "Darwin":
        return _of_mac(system), []
    gpus, problems = nvidia_gpus(system)
    if gpus:
        gpus, problems = with_driver(system, gpus)
    named = _names_of_amd(system)
    for device in graphics_devices(system):
        vendor = device.number.partition(":")[0]
        if vendor == AMD:
            gpus.append(_by_files(system, device, "rocm", named.get(device.where, "")))
        elif vendor == INTEL and _is_known(device):
            gpus.append(_by_files(system, device, "xpu", ""))
        elif vendor == NVIDIA and not gpus and not problems:
            problems.append(
                DetectedProblem(
                    what="NVIDIA GPU",
                    problem=f"a GPU is at {device.where} ({device.number}), and no driver answers",
                    remedy="install NVIDIA's driver, with nvidia-smi",
                )
            )
    return gpus, problems


def _by_files(system: ObservedSystem, device: PciDevice, kind: Literal["rocm", "xpu"], name: str) -> DetectedGpu:
    """Return a GPU as sysfs describes it."""
    stated = [system.text(device.folder / file).strip() for file in _CAPACITY]
    capacity = next((int(text, 0) for text in stated if re.fullmatch(r"\d+|0x[0-9a-fA-F]+", text)), 0) or None
    used = system.text(device.folder / "mem_info_vram_used").strip()
    product = " ".join(system.text(device.folder / "product_name").split()) or name
    free = max(0, capacity - int(used)) if capacity is not None and used.isdecimal() else None
    devices = reported_gpus(product, capacity, device.number) or reported_gpus("", capacity, device.number)
    return DetectedGpu(
        name=(product or f"{'AMD' if kind == 'rocm' else 'Intel'} GPU {device.number}")[:200],
        kind=kind,
        via="sysfs",
        pci=device.number,
        where=device.where,
        capacity=capacity,
        free=free,
        link=find_link(system, device),
        devices=tuple(devices[:16]),
    )


def _is_known(device: PciDevice) -> bool:
    """Whether an Intel GPU is one that the catalogue has: processors have smaller ones that draw screens."""
    return bool(reported_gpus("", None, device.number))


def _names_of_amd(system: ObservedSystem) -> Mapping[str, str]:
    """Return names by address, as rocm-smi prints them; none where it is not there or prints something else."""
    answer = system.output("rocm-smi", "--showproductname", "--showbus", "--json")
    content = _json(answer.text) if answer is not None and answer.code == 0 else None
    cards = [card for card in (content or {}).values() if isinstance(card, dict)]
    names = {}
    for card in cards:
        product = next((str(card[key]) for key in _PRODUCT_KEYS if card.get(key)), "")
        names[str(card.get("PCI Bus", "")).lower()] = " ".join(product.split())
    return names


def _of_mac(system: ObservedSystem) -> list[DetectedGpu]:
    """Return the GPU of an Apple chip, whose cores tell its variants apart."""
    answer = system.output("system_profiler", "-json", "SPDisplaysDataType")
    content = _json(answer.text) if answer is not None and answer.code == 0 else None
    rows = content.get("SPDisplaysDataType", []) if content is not None else []
    gpus = []
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, dict) and str(row.get("sppci_model", "")).startswith("Apple "):
            model, cores = str(row["sppci_model"]), str(row.get("sppci_cores", ""))
            name = f"{model} {cores}-core" if cores.isdecimal() else model
            devices = tuple(reported_gpus(name, None)[:16])
            gpus.append(DetectedGpu(name=name[:200], kind="metal", via="system_profiler", devices=devices))
    return gpus


def _json(text: str) -> dict[str, Any] | None:
    """Return the JSON object in an output, which may have warnings before it; None where there is none."""
    try:
        content = json.loads(text[max(0, text.find("{")) :])
    except ValueError:
        return None
    return content if isinstance(content, dict) else None
