"""The devices that are known by name: GPUs and CPUs, with the sources of their data sheet figures."""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from helmsman.schemas.errors import UsageError
from helmsman.schemas.figures import Source

DEVICES = Path(__file__).parent / "devices"
_REPORTED = re.compile(r"\((?:r|tm)\)|@.*$|\d+-core processor|\d+th gen ")
_VENDOR_WORDS = frozenset({"nvidia", "geforce", "amd", "radeon", "intel", "core", "processor", "cpu", "gpu", "quadro"})
_SIZE = re.compile(r" \d+GB$")


@dataclass(frozen=True, slots=True)
class Gpu:
    """Data sheet of a GPU: bytes, bytes/s, dense FP16 FLOP/s with FP32 accumulation, PCIe generation and lanes."""

    name: str
    kind: Literal["cuda", "rocm", "metal"]
    device_class: str
    capacity: int
    bandwidth: float
    flops: float
    source: str
    pcie: tuple[int, int] | None = None

    @property
    def integrated(self) -> bool:
        """Whether it reads the memory of the CPU in whose chip it is."""
        return self.pcie is None


@dataclass(frozen=True, slots=True)
class Cpu:
    """Data sheet of one socket. `pipes`: (cores, FP32 FLOP per cycle and core); `memory`: DDR4-3200 and the like;
    `pcie`: generation and lanes of a GPU's slot, None where the GPU is in the chip."""

    name: str
    device_class: str
    pipes: tuple[tuple[int, int], ...]
    base_hz: float
    boost_hz: float
    isa: tuple[str, ...]
    channels: int
    memory: str
    cache_bytes: int
    source: str
    pcie: tuple[int, int] | None = None

    @property
    def integrated(self) -> bool:
        """Whether a GPU in the same chip reads its memory."""
        return self.pcie is None

    @property
    def cores(self) -> int:
        """Physical cores."""
        return sum(cores for cores, _ in self.pipes)

    @property
    def flops_per_cycle(self) -> int:
        """FP32 FLOP per cycle of all cores together."""
        return sum(cores * width for cores, width in self.pipes)


def read_catalogue(name: str) -> Any:
    """The content of one of the package's own device tables."""
    return json.loads((DEVICES / f"{name}.json").read_bytes())


def find_gpu(name: str) -> tuple[Gpu, Source]:
    """The GPU called `name` and its source. Raises UsageError with close matches."""
    table = read_catalogue("gpus")
    row = dict(_find(name, table["gpus"], "gpu", "GPU"))
    row["pcie"] = tuple(row["pcie"]) if "pcie" in row else None
    gpu = Gpu(**row)
    return gpu, Source(**table["sources"][gpu.source])


def find_cpu(name: str) -> tuple[Cpu, Source]:
    """The CPU called `name` and its source. Raises UsageError with close matches."""
    table = read_catalogue("cpus")
    row = dict(_find(name, table["cpus"], "cpu", "CPU"))
    row["pcie"] = tuple(row["pcie"]) if "pcie" in row else None
    row["pipes"] = tuple((cores, width) for cores, width in row["pipes"])
    row["isa"] = tuple(row["isa"])
    cpu = Cpu(**row)
    return cpu, Source(**table["sources"][cpu.source])


def close_names(name: str, known: Iterable[str]) -> list[str]:
    """The known names nearest to `name`, best first, at most five."""
    from difflib import get_close_matches

    of = {plain(candidate): candidate for candidate in known}
    wanted = plain(name)
    near = [of[key] for key in get_close_matches(wanted, of, n=4, cutoff=0.5)]
    near += [candidate for key, candidate in of.items() if wanted and wanted in key and candidate not in near]
    return near[:5]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A remedy that names the known names nearest to `name`, or else the first of all."""
    names = sorted(known)
    near = close_names(name, names)
    return f"did you mean {', '.join(near)}?" if near else f"known: {', '.join(names[:8])}, ..."


def plain(name: str) -> str:
    """`name` without case, spaces, punctuation, vendor words and what /proc/cpuinfo adds, for comparison."""
    words = re.findall(r"[a-z0-9+]+", _REPORTED.sub(" ", name.lower()))
    return "".join(word for word in words if word not in _VENDOR_WORDS)


def _find(name: str, rows: list[dict[str, Any]], field: str, what: str) -> dict[str, Any]:
    wanted = plain(name)
    exact = [row for row in rows if plain(row["name"]) == wanted]
    exact = exact or [row for row in rows if plain(_SIZE.sub("", row["name"])) == wanted]
    found = exact or [row for row in rows if wanted and wanted in _runs(row["name"])]
    if len(found) == 1:
        return found[0]
    names = [row["name"] for row in found or rows]
    problem = f"more than one {what} is called so" if found else f"no {what} of the catalogue is called so"
    raise UsageError(problem, field=field, value=name, remedy=did_you_mean(name, names))


def _runs(name: str) -> set[str]:
    """Every run of words of `name`: people write `7950X` or `i7-13700H` for the full name."""
    words = re.findall(r"[a-z0-9+]+", name.lower())
    return {"".join(words[start:end]) for start in range(len(words)) for end in range(start + 1, len(words) + 1)}
