"""The processor: its name, cores and instruction sets, from /proc/cpuinfo, or macOS's sysctl."""

import os
import platform
import re
from collections.abc import Mapping, Sequence

from helmsman.detection.system import ObservedSystem
from helmsman.schemas.detected import DetectedProcessor

Entry = Mapping[str, str]
"""The system's record of one of its processors, by field."""

_ARM_PARTS = {
    "0xd08": "Cortex-A72",
    "0xd0b": "Cortex-A76",
    "0xd0c": "Neoverse-N1",
    "0xd40": "Neoverse-V1",
    "0xd42": "Cortex-A78AE",
    "0xd49": "Neoverse-N2",
    "0xd4f": "Neoverse-V2",
    "0xd85": "Cortex-X925",
}
"""Arm's cores by the number that they report (Arm's technical reference manuals, MIDR_EL1)."""

_NAMED_FLAGS = (
    *("sse4_2", "avx", "f16c", "fma", "avx2", "avx_vnni", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16"),
    *("amx_tile", "amx_bf16", "amx_int8", "asimd", "asimdhp", "asimddp", "bf16", "i8mm", "sve", "sve2"),
)
"""Flags that say something about kernels."""


def find_processor(system: ObservedSystem) -> DetectedProcessor:
    """Return the processor of a system, with what of it this process may use."""
    if system.name == "Darwin":
        return _of_mac(system)
    entries = _entries(system.text("/proc/cpuinfo"))
    usable = [entry for entry in entries if system.affinity is None or _number(entry) in system.affinity] or entries
    if not usable:
        threads = len(system.affinity or ()) or os.cpu_count() or 1
        return DetectedProcessor(name=platform.machine() or "unknown", threads=threads, cores=threads)
    first = usable[0]
    flags = set((first.get("flags") or first.get("Features") or "").split())
    cores = {(entry.get("physical id"), entry.get("core id", entry["processor"])) for entry in usable}
    sockets = {entry.get("physical id", "0") for entry in usable}
    family = first.get("cpu family", "")
    return DetectedProcessor(
        name=_name(first),
        threads=len(usable),
        cores=len(cores),
        sockets=len(sockets),
        flags=tuple(flag for flag in _NAMED_FLAGS if flag in flags),
        virtual="hypervisor" in flags,
        hz=_clock(system, first),
        family=int(family) if family.isdecimal() else None,
        vendor=first.get("vendor_id") or None,
    )


def _entries(text: str) -> Sequence[Entry]:
    """Return what the file says of every processor; Arm's files have the name of the whole in a block of its own."""
    blocks = (dict(_pair(line) for line in block.splitlines() if ":" in line) for block in text.split("\n\n"))
    return [block for block in blocks if "processor" in block]


def _pair(line: str) -> tuple[str, str]:
    key, _, value = line.partition(":")
    return key.strip(), value.strip()


def _number(entry: Entry) -> int:
    number = entry["processor"]
    return int(number) if number.isdecimal() else -1


def _name(entry: Entry) -> str:
    part = _ARM_PARTS.get(entry.get("CPU part", ""))
    name = entry.get("model name") or part or entry.get("CPU part") or platform.machine() or "unknown"
    return " ".join(name.split())[:200]


def _clock(system: ObservedSystem, entry: Entry) -> float | None:
    """Return the highest clock that the system states, in hertz: of its power management, in the name, or of now."""
    highest = system.text("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq").strip()
    if highest.isdecimal() and int(highest):
        return 1e3 * int(highest)
    named = re.search(r"@ ?([\d.]+) ?GHz", entry.get("model name", ""))
    if named:
        return 1e9 * float(named[1])
    now = entry.get("cpu MHz", "")
    return 1e6 * float(now) if re.fullmatch(r"\d+(\.\d+)?", now) and float(now) > 0 else None


def _of_mac(system: ObservedSystem) -> DetectedProcessor:
    def sysctl(key: str) -> str:
        answer = system.output("sysctl", "-n", key)
        return answer.text.strip() if answer is not None and answer.code == 0 else ""

    threads, cores = (sysctl(key) for key in ("hw.logicalcpu", "hw.physicalcpu"))
    count = int(threads) if threads.isdecimal() else os.cpu_count() or 1
    name = sysctl("machdep.cpu.brand_string") or platform.machine() or "unknown"
    arm = sysctl("hw.optional.arm64") == "1"
    flags = ("asimd", "asimdhp", "asimddp") if arm else ("avx2", "f16c", "fma")
    known = ("bf16", "i8mm") if sysctl("hw.optional.arm.FEAT_BF16") == "1" else ()
    return DetectedProcessor(
        name=name, threads=count, cores=int(cores) if cores.isdecimal() else count, flags=(*flags, *known)
    )
