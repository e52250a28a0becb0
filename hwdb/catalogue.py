"""The devices that are known by name: GPUs and CPUs, with the sources of their data sheet figures."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from helmsman.hwdb.device_names import Row, find_device, has_capacity, reported_devices
from helmsman.schemas.figures import Source

DEVICES = Path(__file__).parent / "devices"


@dataclass(frozen=True, slots=True)
class Gpu:
    """Data sheet of a GPU: bytes, bytes/s, dense FP16 FLOP/s with FP32 accumulation, PCIe generation and lanes, and
    watts that its board may take, where they are known: of laptops those of the fastest settings. `fabric`: what joins
    it to the others of its board, where every such board has that."""

    name: str
    kind: Literal["cuda", "rocm", "metal", "xpu"]
    device_class: str
    capacity: int
    bandwidth: float
    flops: float
    source: str
    pcie: tuple[int, int] | None = None
    power: float | None = None
    fabric: str | None = None

    @property
    def integrated(self) -> bool:
        """Whether it reads the memory of the CPU in whose chip it is."""
        return self.pcie is None


@dataclass(frozen=True, slots=True)
class Cpu:
    """Data sheet of one socket. `pipes`: (cores, FP32 FLOP per cycle and core); `memory`: DDR4-3200 and the like;
    `pcie`: generation and lanes of a GPU's slot, None where there is none; `graphics`: the GPU in the chip, or those of
    which one is."""

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
    graphics: tuple[str, ...] = ()

    @property
    def cores(self) -> int:
        """Physical cores."""
        return sum(cores for cores, _ in self.pipes)

    @property
    def flops_per_cycle(self) -> int:
        """FP32 FLOP per cycle of all cores together."""
        return sum(cores * width for cores, width in self.pipes)


_DEVICES = 1024
"""The number of names whose devices are kept: plans on one machine look for the same few again and again."""


@lru_cache(maxsize=4)
def read_catalogue(name: str) -> Any:
    """Return the content of one of the package's own device tables, which are not to be changed: each is read once, as
    a machine looks at all of them."""
    return json.loads((DEVICES / f"{name}.json").read_bytes())


@lru_cache(maxsize=_DEVICES)
def find_gpu(name: str) -> tuple[Gpu, Source]:
    """Return the GPU called `name` and its source. Raises UsageError with close matches."""
    table = read_catalogue("gpus")
    return _gpu(find_device(name, table["gpus"], "gpu", "GPU"), table["sources"])


@dataclass(frozen=True, slots=True)
class Fabric:
    """Describes the interconnect between every two GPUs of a board, NVLink or Infinity Fabric. `rate`: bytes/s a
    direction; `most`: the largest number of GPUs that it joins (None: any); `source`: of both."""

    rate: float
    source: Source
    most: int | None = None


def find_fabric(name: str) -> Fabric:
    """Return the interconnect of the catalogue that is called `name`."""
    row = read_catalogue("gpus")["fabrics"][name]
    return Fabric(row["rate"], Source(**row["source"]), row.get("most"))


@lru_cache(maxsize=_DEVICES)
def find_cpu(name: str) -> tuple[Cpu, Source]:
    """Return the CPU called `name` and its source. Raises UsageError with close matches."""
    table = read_catalogue("cpus")
    return _cpu(find_device(name, table["cpus"], "cpu", "CPU"), table["sources"])


def reported_gpus(name: str, capacity: int | None, pci: str = "") -> list[str]:
    """Return the names of the GPUs that a driver may mean by `name`, or the system by `pci` (vendor:device) where no
    name is known to it; `capacity`: bytes of memory, as they say."""
    rows: list[dict[str, Any]] = read_catalogue("gpus")["gpus"]
    named = reported_devices(name, rows, capacity) if name else []
    same = [row for row in rows if pci in row.get("pci", ()) and (capacity is None or has_capacity(row, capacity))]
    return [row["name"] for row in named or same]


def _gpu(row: Row, sources: Mapping[str, Any]) -> tuple[Gpu, Source]:
    fields = {**_figures(row), "pcie": tuple(row["pcie"]) if "pcie" in row else None}
    return Gpu(**fields), Source(**sources[row["source"]])


def _cpu(row: Row, sources: Mapping[str, Any]) -> tuple[Cpu, Source]:
    tuples = {name: tuple(row.get(name, ())) for name in ("isa", "graphics")}
    pipes = tuple((cores, width) for cores, width in row["pipes"])
    fields = {**_figures(row), **tuples, "pipes": pipes, "pcie": tuple(row["pcie"]) if "pcie" in row else None}
    return Cpu(**fields), Source(**sources[row["source"]])


def _figures(row: Row) -> dict[str, Any]:
    """Return a row without what it is known by."""
    return {name: value for name, value in row.items() if name not in ("names", "pci")}
