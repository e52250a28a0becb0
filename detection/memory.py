"""Memory: bytes that there are, that limits allow and that are free, and the modules, where the system tells."""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from helmsman.detection.control_groups import memory_groups
from helmsman.detection.system import ObservedSystem
from helmsman.schemas.detected import DetectedMemory, DetectedModules

_TABLE = "/sys/firmware/dmi/tables/DMI"
_KINDS = {0x18: "DDR3", 0x1A: "DDR4", 0x1E: "LPDDR4X", 0x22: "DDR5", 0x23: "LPDDR5X"}
"""Kinds of memory by their number (SMBIOS 3.7, table 77; later LPDDR of a number counts as the faster one)."""
_DEVICE = 17
"""The structure of a memory device (SMBIOS 3.7, 7.18)."""
_UNKNOWN = 0xFFFF


@dataclass(frozen=True, slots=True)
class MemoryModule:
    """A module in its place: bytes, kind and transfers/s, and what its place is called."""

    size: int
    kind: str
    speed: int
    place: str


def find_memory(system: ObservedSystem) -> DetectedMemory:
    """Return the memory of a system, with what of it this process may use."""
    stated = _meminfo(system)
    total = stated.get("MemTotal", 0) or _of_mac(system)
    free = stated.get("MemAvailable", total)
    groups = memory_groups(system.at("/proc"), system.at("/sys/fs/cgroup"))
    allowed = min((group.limit for group in groups), default=total)
    left = min((group.limit - group.used for group in groups), default=free)
    return DetectedMemory(
        total=total,
        allowed=min(total, allowed),
        free=max(0, min(free, left)),
        limited="control group" if allowed < total else None,
        modules=summarise(list(read_modules(system.content(_TABLE)))),
    )


def summarise(modules: list[MemoryModule]) -> DetectedModules | None:
    """Return modules as one kind at the speed of the slowest; None where none tells its kind."""
    known = [module for module in modules if module.kind and module.speed]
    if not known:
        return None
    slowest = min(known, key=lambda module: module.speed)
    channels = {_channel(module.place) for module in known}
    count = len(channels) if "" not in channels else len(known)
    return DetectedModules(kind=f"{slowest.kind}-{slowest.speed}", modules=len(known), channels=min(count, len(known)))


def read_modules(table: bytes) -> Iterator[MemoryModule]:
    """Yield the modules in a table of SMBIOS; places without a module are left out, and a table that is cut ends."""
    at = 0
    while at + 4 <= len(table):
        kind, length = table[at], table[at + 1]
        end = table.find(b"\x00\x00", at + length)
        if length < 4 or end < 0:
            return
        if kind == _DEVICE and length >= 0x17:
            module = _module(table[at : at + length], table[at + length : end].split(b"\x00"))
            if module is not None:
                yield module
        at = end + 2


def _module(body: bytes, strings: list[bytes]) -> MemoryModule | None:
    size = struct.unpack_from("<H", body, 0x0C)[0]
    if size in (0, _UNKNOWN):
        return None
    if size == 0x7FFF and len(body) >= 0x20:
        count = struct.unpack_from("<I", body, 0x1C)[0] << 20
    else:
        count = (size & 0x7FFF) << (10 if size & 0x8000 else 20)
    configured = struct.unpack_from("<H", body, 0x20)[0] if len(body) >= 0x22 else 0
    speed = configured or struct.unpack_from("<H", body, 0x15)[0]
    named = " ".join(_string(strings, body[at]) for at in (0x10, 0x11))
    return MemoryModule(count, _KINDS.get(body[0x12], ""), 0 if speed == _UNKNOWN else speed, named)


def _string(strings: list[bytes], number: int) -> str:
    return strings[number - 1].decode("ascii", "replace") if 0 < number <= len(strings) else ""


def _channel(place: str) -> str:
    """Return the channel that the name of a place states, as `ChannelA-DIMM0` and `P0 CHANNEL B` do; nothing where it
    states none."""
    named = re.search(r"(P\d+|NODE ?\d+|CPU ?\d+)?\W*CHANNEL\W?([A-P0-9])", place.upper())
    if named is None:
        named = re.search(r"(P\d+|CPU ?\d+)?\W*DIMM\W?([A-P])\d?\b", place.upper())
    return f"{named[1] or ''}{named[2]}" if named else ""


def _meminfo(system: ObservedSystem) -> dict[str, int]:
    """Return bytes by name; empty where the system has no such file."""
    lines = (line.split() for line in system.text("/proc/meminfo").splitlines())
    return {words[0].rstrip(":"): 1024 * int(words[1]) for words in lines if len(words) > 1 and words[1].isdecimal()}


def _of_mac(system: ObservedSystem) -> int:
    answer = system.output("sysctl", "-n", "hw.memsize")
    stated = answer.text.strip() if answer is not None else ""
    return int(stated) if stated.isdecimal() else 0
