"""The storage that plans may use, and whether the machine leads from it to where it is used."""

from typing import Literal

from helmsman.planner.machine import roles
from helmsman.schemas.errors import UsageError
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.storage import STORAGE


def storage_of(path: Literal["direct", "bounce"] | None, hardware: Hardware) -> tuple[str, ...]:
    """Return the NVMe memories of the machine, where they may be used by `path`. Raises UsageError."""
    if path is None:
        return ()
    names = tuple(memory.name for memory in hardware.memories if memory.kind == STORAGE)
    if not names:
        remedy = "leave `nvme` out, or use a machine whose record has a memory of kind nvme"
        raise UsageError("this machine's record has no storage", field="nvme", value=path, remedy=remedy)
    _check_links(path, hardware, names)
    return names


def _check_links(path: str, hardware: Hardware, names: tuple[str, ...]) -> None:
    """Storage is read straight by the accelerator, or by the host."""
    parts = roles(hardware)
    target = parts.accelerator if path == "direct" else parts.host
    if not parts.separate or target is None:
        return
    lacking = next((name for name in names if hardware.link(name, target.memory) is None), None)
    if lacking is not None:
        other = "bounce" if path == "direct" else "direct"
        remedy = f"use `nvme` {other}, or a record with such a link"
        raise UsageError(f"no link from {lacking} to {target.memory}", field="nvme", value=path, remedy=remedy)
