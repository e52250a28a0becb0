"""The devices that are known by name: GPUs and CPUs, with the sources of their data sheet figures."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from helmsman.schemas.errors import UsageError
from helmsman.schemas.figures import Source
from helmsman.schemas.near_names import did_you_mean, plain

DEVICES = Path(__file__).parent / "devices"
_SIZE = re.compile(r" \d+GB$")
_SOLD_SIZE = re.compile(r"[ _-]*\(?(\d+) ?G(?:i?B)?\)?$", re.IGNORECASE)
_WITHOUT_GRAPHICS = re.compile(r"(?<=[0-9kK])[fF]$")


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
    """Return the content of one of the package's own device tables."""
    return json.loads((DEVICES / f"{name}.json").read_bytes())


def find_gpu(name: str) -> tuple[Gpu, Source]:
    """Return the GPU called `name` and its source. Raises UsageError with close matches."""
    table = read_catalogue("gpus")
    row = dict(_find(name, table["gpus"], "gpu", "GPU"))
    row["pcie"] = tuple(row["pcie"]) if "pcie" in row else None
    gpu = Gpu(**row)
    return gpu, Source(**table["sources"][gpu.source])


def find_cpu(name: str) -> tuple[Cpu, Source]:
    """Return the CPU called `name` and its source. Raises UsageError with close matches."""
    table = read_catalogue("cpus")
    row = dict(_find(name, table["cpus"], "cpu", "CPU"))
    row["pcie"] = tuple(row["pcie"]) if "pcie" in row else None
    row["pipes"] = tuple((cores, width) for cores, width in row["pipes"])
    row["isa"] = tuple(row["isa"])
    cpu = Cpu(**row)
    return cpu, Source(**table["sources"][cpu.source])


def _find(name: str, rows: list[dict[str, Any]], field: str, what: str) -> dict[str, Any]:
    wanted = plain(name)
    exact = [row for row in rows if plain(row["name"]) == wanted]
    exact = exact or [row for row in rows if plain(_SIZE.sub("", row["name"])) == wanted]
    exact = exact or [row for row in rows if plain(row["name"]) in _as_sold(name, row)]
    matches = exact or [row for row in rows if wanted and wanted in _runs(row["name"])]
    matches = matches or [row for row in rows if any(_ends(row["name"], form) for form in _as_sold(name, row))]
    if len(matches) == 1:
        return matches[0]
    names = [row["name"] for row in matches or rows]
    problem = f"more than one {what} is called so" if matches else f"no {what} of the catalogue is called so"
    raise UsageError(problem, field=field, value=name, remedy=did_you_mean(name, names))


def _as_sold(name: str, row: dict[str, Any]) -> Iterator[str]:
    """Return what a name comes to without what shops add: the memory that a GPU has, or the F of a processor without
    graphics, as in `RTX 4060 8GB` and `i5-12400F`."""
    sized = _SOLD_SIZE.search(name)
    if sized and "capacity" in row and round(row["capacity"] / 2**30) == int(sized[1]):
        yield plain(name[: sized.start()])
    if "pipes" in row and row["name"].startswith("Intel") and _WITHOUT_GRAPHICS.search(name):
        yield from (plain(name[:-1]), plain(f"Intel Core {name[:-1]}"))


def _ends(name: str, form: str) -> bool:
    """Whether the words of `name`, without a size, end with `form`: `P40` is Tesla P40, `RTX 4060` no Ti."""
    return bool(form) and plain(_SIZE.sub("", name)).endswith(form)


def _runs(name: str) -> set[str]:
    """Return every run of words of `name`: people write `7950X` or `i7-13700H` for the full name."""
    words = re.findall(r"[a-z0-9+]+", name.lower())
    return {"".join(words[start:end]) for start in range(len(words)) for end in range(start + 1, len(words) + 1)}
