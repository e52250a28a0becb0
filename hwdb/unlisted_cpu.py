"""A processor that the catalogue does not have, from what the system says of it."""

import re

from helmsman.hwdb.catalogue import Cpu
from helmsman.schemas.detected import DetectedProcessor
from helmsman.schemas.figures import Source

_MIB = 2**20
_SERVER = re.compile(r"xeon|epyc|threadripper|opteron|platinum|gold|silver", re.IGNORECASE)
_LAPTOP = re.compile(r"\d(?:H|HX|HS|HK|U|P|Y|G\d)\b")
_CLOCK = 2.5e9
"""Hertz, where no file states a clock."""
_TURBO = 1.2
"""Highest clock to the stated one, where that is all that is known."""
_SERVER_MEMORY = (
    ("amx_tile", "DDR5-4800", 8),
    ("avx512_bf16", "DDR5-4800", 12),
    ("avx512_vnni", "DDR4-3200", 8),
    ("avx512f", "DDR4-2666", 6),
    ("avx2", "DDR4-2400", 4),
)
"""Memory of a server's socket by the newest instructions that it has: Sapphire Rapids, Genoa, Ice Lake, Skylake,
Broadwell (vendors' platforms, recalled)."""
_ZEN_5 = 26
"""The family from which AMD's cores have 512 bits at once."""


def unlisted_cpu(processor: DetectedProcessor) -> tuple[Cpu, Source]:
    """Return a processor of as many cores as are seen, at the clock that is stated, with the memory of its class."""
    kind, memory, channels = _class_of(processor)
    cores = max(1, processor.cores // processor.sockets)
    hertz = processor.hz or _CLOCK
    cpu = Cpu(
        name=processor.name,
        device_class=kind,
        pipes=((cores, _width(processor)),),
        base_hz=hertz / _TURBO,
        boost_hz=hertz * _TURBO,
        isa=processor.flags,
        channels=channels,
        memory=memory,
        cache_bytes=max(8 * _MIB, 2 * _MIB * cores),
        source="unlisted",
        pcie=(4, 16),
    )
    where = f"assumed: a processor that is not in the catalogue, by its instruction sets and name: {kind}, {memory}"
    return cpu, Source(kind="assumed", where=where)


def _class_of(processor: DetectedProcessor) -> tuple[str, str, int]:
    """Return the device class, the memory and its channels a socket."""
    flags = set(processor.flags)
    if "asimd" in flags:
        return ("apple-cpu", "LPDDR5-6400", 2) if "Apple" in processor.name else ("arm-server", "DDR4-3200", 8)
    if _SERVER.search(processor.name) or processor.virtual:
        known = next(((kind, channels) for flag, kind, channels in _SERVER_MEMORY if flag in flags), ("DDR3-1600", 3))
        return "x86-server", *known
    if _LAPTOP.search(processor.name):
        return "x86-laptop", "DDR4-3200", 2
    if flags & {"avx_vnni", "avx512_bf16"}:
        return "x86-desktop-ddr5", "DDR5-5600", 2
    return "x86-desktop-ddr4", "DDR4-3200" if "avx2" in flags else "DDR3-1600", 2


def _width(processor: DetectedProcessor) -> int:
    """Return the FP32 FLOP that a core does in a cycle, by its widest instructions."""
    flags = set(processor.flags)
    if "asimd" in flags:
        return 32 if "sve" in flags else 16
    if "avx512f" in flags:
        halves = processor.vendor == "AuthenticAMD" and (processor.family or 0) < _ZEN_5
        return 32 if halves else 64
    if "avx2" in flags:
        return 32
    return 16 if "avx" in flags else 8
