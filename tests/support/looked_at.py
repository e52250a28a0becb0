"""Machines to look at that are made of files and programs in a folder."""

from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from helmsman.detection.system import ObservedSystem

GIB, MIB = 2**30, 2**20

RYZEN = "AMD Ryzen 9 7950X 16-Core Processor"
FLAGS = "fpu sse4_2 avx f16c fma avx2 avx512f avx512bw avx512_vnni avx512_bf16"


def cpuinfo(
    name: str = RYZEN, cores: int = 16, threads: int = 2, flags: str = FLAGS, vendor: str = "AuthenticAMD"
) -> str:
    """Return /proc/cpuinfo of a processor of one socket."""
    block = "processor\t: {number}\nvendor_id\t: {vendor}\ncpu family\t: 25\nmodel name\t: {name}\nphysical id\t: 0\n"
    block += "core id\t: {core}\ncpu MHz\t: 4500.000\nflags\t\t: {flags}\n"
    numbers = range(cores * threads)
    return "\n".join(
        block.format(number=number, core=number % cores, name=name, flags=flags, vendor=vendor) for number in numbers
    )


def meminfo(total: int = 64 * GIB, available: int = 60 * GIB) -> str:
    """Return /proc/meminfo."""
    return f"MemTotal: {total // 1024} kB\nMemFree: 1 kB\nMemAvailable: {available // 1024} kB\n"


PLAIN = {"proc/cpuinfo": cpuinfo(), "proc/meminfo": meminfo(), "proc/self/cgroup": "0::/\n"}
"""A desktop machine without a GPU."""


def looked_at(
    place: Path,
    files: Mapping[str, str | bytes],
    programs: Mapping[str, str] | None = None,
    packages: Mapping[str, str] | None = None,
    pynvml: ModuleType | None = None,
    name: str = "Linux",
    driver: str = "exit 0",
    **environment: str,
) -> ObservedSystem:
    """Return a system whose files and programs are these; `programs`: scripts of a shell by name; `driver`: that which
    answers for NVIDIA's library."""
    for file, content in files.items():
        path = place / "root" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    binaries = place / "bin"
    binaries.mkdir(parents=True, exist_ok=True)
    for program, script in (programs or {}).items():
        (binaries / program).write_text(f"#!/bin/sh\n{script}\n")
        (binaries / program).chmod(0o755)
    (binaries / "python").write_text(f"#!/bin/sh\n{driver}\n")
    (binaries / "python").chmod(0o755)
    (place / "home").mkdir(exist_ok=True)
    known = dict(packages or {})

    def module(wanted: str) -> ModuleType:
        if pynvml is None:
            raise ImportError(wanted)
        return pynvml

    return ObservedSystem(
        root=place / "root",
        environment={"PATH": str(binaries), "HOME": str(place / "home"), **environment},
        name=name,
        package=known.get,
        module=module,
        python=str(binaries / "python"),
    )


def pci_device(address: str, number: str, **more: str) -> dict[str, str]:
    """Return the files of a PCI device that draws; `more`: others in its folder."""
    vendor, _, device = number.partition(":")
    folder = f"sys/bus/pci/devices/{address}"
    own = {"class": "0x030000\n", "vendor": f"0x{vendor}\n", "device": f"0x{device}\n", **more}
    return {f"{folder}/{file}": text for file, text in own.items()}


def smbios(*modules: tuple[int, int, int, str]) -> bytes:
    """Return a table of memory devices: bytes, number of the kind, transfers/s, and the name of the place."""
    table = b"\x00\x04\x00\x00\x00\x00"  # a structure of another type, without strings
    for size, kind, speed, where in modules:
        body = bytearray(0x28)
        body[0], body[1] = 17, len(body)
        body[0x0C:0x0E] = (min(size // MIB, 0x7FFF)).to_bytes(2, "little")
        body[0x1C:0x20] = (size // MIB).to_bytes(4, "little")
        body[0x10], body[0x12] = 1, kind
        body[0x15:0x17] = body[0x20:0x22] = speed.to_bytes(2, "little")
        table += bytes(body) + where.encode() + b"\x00\x00"
    return table
