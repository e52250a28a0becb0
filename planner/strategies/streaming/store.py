"""A home of weights beside host memory: storage, Optane, CXL or another node's memory, and how they come from there."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from helmsman.planner.cost.stripes import stripes
from helmsman.planner.machine import Roles
from helmsman.schemas.plan import Path
from helmsman.schemas.storage import STORAGE

StoragePath = Literal["direct", "bounce"]


@dataclass(frozen=True, slots=True)
class WeightStore:
    """`memories` that hold a copy each of what is stored, `stripes` (the share of a transfer that each serves; none of
    one), and the `path` by which it comes. `requested`: whether it is to be used where everything fits without."""

    memories: tuple[str, ...]
    stripes: tuple[float, ...]
    path: Path
    requested: bool = False

    @property
    def bounces(self) -> bool:
        """Whether it stops in host memory on its way."""
        return self.path == "bounce"


def store_of(roles: Roles, path: StoragePath | None = None, home: str | None = None) -> WeightStore | None:
    """The home that weights have beside the host's memory on a machine with one accelerator: memory `home`, else all
    storage, else the largest memory whose devices take no part. Storage is read by `path`: through host memory where
    that is possible unless another is asked for. None: there is none, or no way from it."""
    if not roles.separate or roles.others or home == roles.host.memory:
        return None
    memories = roles.hardware.memories
    storage = [memory.name for memory in memories if memory.kind == STORAGE and home in (None, memory.name)]
    for way in ("bounce", "direct") if path is None else (path,):
        names = tuple(name for name in storage if _linked(roles, name, way))
        if names:
            target = _target(roles, way)
            shares = stripes(roles.hardware, names, target) if len(names) > 1 else ()
            return WeightStore(names, shares, way, requested=way == "direct")
    if path is not None or storage:
        return None
    linked = (name for name in _others(roles) if home in (None, name) and _linked(roles, name, "direct"))
    home_memory = max(linked, key=lambda name: roles.hardware.memory(name).available, default=None)
    return None if home_memory is None else WeightStore((home_memory,), (), "pinned", requested=home is not None)


def _linked(roles: Roles, name: str, way: StoragePath) -> bool:
    return roles.hardware.link(name, _target(roles, way)) is not None


def _target(roles: Roles, way: StoragePath) -> str:
    """The memory to which it is read."""
    return (roles.host if way == "bounce" or roles.accelerator is None else roles.accelerator).memory


def _others(roles: Roles) -> Iterator[str]:
    """The memories that neither host nor accelerator works in, storage apart."""
    used = {device.memory for device in (roles.host, *roles.accelerators)}
    return (memory.name for memory in roles.hardware.memories if memory.name not in used and memory.kind != STORAGE)
