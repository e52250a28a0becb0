"""The machine this process runs on: its processors, its memory, its last-level cache."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from helmsman.executor.system.room import capacity, room

_CACHE = Path("/sys/devices/system/cpu/cpu0/cache")
_ASSUMED_CACHE = 32 << 20
_DRIVERS = (Path("/dev/nvidiactl"), Path("/dev/dxg"))
"""Devices of NVIDIA's driver, and of Windows' for Linux beside it."""
ROTATION = 8
"""Times the last-level cache that is read before a buffer's turn comes again, so that nothing is left of it there."""
LARGEST = 768 << 20
"""Unless that is more than this: a server's cache of 256 MiB is covered three times, which already leaves next to
nothing of a buffer in it. Virtual machines are told the cache of a whole socket, 480 MiB on two cores of an Intel Xeon,
and get a part: from 128 MiB on these read no faster than from 4 GiB."""


def beyond_caches(cache_bytes: int) -> int:
    """Return how many bytes are read, one buffer after the other and then again, without finding any of them in a
    last-level cache that the system says has `cache_bytes` (E-HELM-30)."""
    return min(ROTATION * cache_bytes, LARGEST)


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine that a plan may be executed on.

    `cpus`: processors this process may use; `memory`: bytes of RAM that it may still take; `cache_bytes`: the
    last-level cache, assumed to be 32 MiB where the system does not say; `accelerators`: by kind of device, what
    PyTorch calls those that there are."""

    cpus: tuple[int, ...]
    memory: int
    cache_bytes: int
    accelerators: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def this(cls) -> Self:
        """The machine at hand."""
        return cls(_cpus(), room(), _cache_bytes(), _accelerators())

    @property
    def total_memory(self) -> int:
        """Bytes of RAM that this process may use, in use or not."""
        return capacity()


def _cpus() -> tuple[int, ...]:
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def _accelerators() -> dict[str, tuple[str, ...]]:
    """PyTorch is only asked where the system has a CUDA driver: importing it takes seconds."""
    if not any(driver.exists() for driver in _DRIVERS) or find_spec("torch") is None:
        return {}
    import torch

    names = tuple(f"cuda:{number}" for number in range(torch.cuda.device_count()))
    return {"cuda": names} if names else {}


def _cache_bytes() -> int:
    levels = sorted(_CACHE.glob("index*/size"))
    sizes = [_kibibytes(level.read_text()) for level in levels]
    return max(sizes, default=_ASSUMED_CACHE)


def _kibibytes(text: str) -> int:
    """`36608K` as sysfs writes it."""
    return 1024 * int(text.strip().removesuffix("K"))
