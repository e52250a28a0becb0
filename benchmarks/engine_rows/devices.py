"""The devices of rows: those of the catalogue, and what data sheets say of others that rows are about."""

import re
from dataclasses import dataclass

from helmsman.hwdb.catalogue import find_gpu
from helmsman.hwdb.engine_classes import WITHOUT_MATRICES, engine_class, half_ratio, int8_ratio, lineage
from helmsman.schemas.errors import HelmError

_NAMES = (
    (r"m1-ultra", "Apple M1 Ultra 64-core"), (r"m1-pro", "Apple M1 Pro 16-core"), (r"M1max", "Apple M1 Max 32-core"),
    (r"apple-m1-", "Apple M1 8-core"),
    (r"(?i)M2[ -]?ultra", "Apple M2 Ultra 76-core"), (r"m2-pro", "Apple M2 Pro 19-core"),
    (r"m2-max", "Apple M2 Max 38-core"),
    (r"m4-pro", "Apple M4 Pro 20-core"), (r"RTX 3080", "RTX 3080 10GB"), (r"RTX 6000 Ada", "RTX 6000 Ada 48GB"),
    (r"RTX 5000 Ada", "RTX 5000 Ada 32GB"), (r"RTX 4000 Ada", "RTX 4000 Ada 20GB"), (r"A6000", "RTX A6000"),
    (r"Quadro RTX 6000", "Quadro RTX 6000 24GB"), (r"Quadro RTX 8000", "Quadro RTX 8000 48GB"),
    (r"Quadro RTX 4000", "Quadro RTX 4000 8GB"), (r"RTX 3060$|RTX 3060 12", "RTX 3060 12GB"), (r"\bA40\b", "A40"),
    (r"L40S", "L40S"), (r"A100 PCIe 80", "A100 PCIe 80GB"), (r"P100", "Tesla P100 PCIe 16GB"),
    (r"Tesla P4\b", "Tesla P4"),
    (r"\bT4\b", "T4"), (r"RTX 4090 D", "RTX 4090 D"), (r"RTX 4090", "RTX 4090"), (r"4070 Super", "RTX 4070 SUPER"),
    (r"RX (6700 XT|6800 XT|6900 XT|7900 XTX|7900 XT|7900 GRE|9070 XT)", r"RX \1"),
    (r"(GTX 1660 Ti)", "GTX 1660 Ti Laptop"), (r"Arc A770", "Intel Arc A770 16GB"),
    (r"Arc ([AB]\d+)", r"Intel Arc \1"),
    (r"Core Ultra 200", "Core Ultra 200 Series"), (r"Ryzen 8000", "Ryzen 8000 Series"), (r"Iris Xe", "Iris Xe"),
    (r"RTX 2060 SUPER", "RTX 2060 SUPER"), (r"(RTX|GTX) ?(A?\d{4}(?: Ti| SUPER| Super)?)", r"\1 \2"),
    (r"Orin", "Jetson AGX Orin"), (r"\bL40\b", "L40"),
)  # fmt: skip
"""Names of the catalogue, and of `_SHEETS`, by what sources call devices; the first that is there counts."""

_SHEETS: dict[str, tuple[str | None, float, float]] = {
    "Core Ultra 200 Series": (None, 136.5e9, 32e12),
    "Ryzen 8000 Series": (None, 89.6e9, 16.6e12),
}
"""Class, bytes/s and FP16 FLOP/s of what rows are about and the catalogue did not have (data sheets, recalled)."""


@dataclass(frozen=True, slots=True)
class RowDevice:
    """A device of rows: bytes/s, FP16 FLOP/s and int8 operations/s of its data sheet; `matrices`: whether it has units
    for them; `nodes`: where its constants come from, the nearest first; `power`: watts, where they are known."""

    name: str
    backend: str
    bandwidth: float
    flops: float
    int8: float
    matrices: bool
    nodes: tuple[str, ...]
    power: float | None = None


def device_named(text: str, backend: str) -> RowDevice | None:
    """Return the device that a source calls `text`; None for one that is not known."""
    matches = ((re.search(pattern, text), known) for pattern, known in _NAMES)
    name = next((matched.expand(known) for matched, known in matches if matched), text)
    try:
        gpu, _ = find_gpu(name)
        name, known, bandwidth, flops, power = gpu.name, gpu.device_class, gpu.bandwidth, gpu.flops, gpu.power
    except HelmError:
        if name not in _SHEETS:
            return None
        known, bandwidth, flops = _SHEETS[name]
        power = None
    group = engine_class(name, known)
    half, int8 = flops * half_ratio(name, group), flops * int8_ratio(name, group)
    nodes = lineage(name, known, backend)
    return RowDevice(name, backend, bandwidth, half, int8, group not in WITHOUT_MATRICES, nodes, power)
