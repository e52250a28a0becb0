"""The storage that --nvme allows, and whether the machine leads from it to where it is used."""

import argparse
from typing import TYPE_CHECKING

from helmsman.schemas.errors import UsageError

if TYPE_CHECKING:
    from helmsman.schemas.hardware import Hardware


def storage_of(args: argparse.Namespace, hardware: "Hardware") -> tuple[str, ...]:
    """The NVMe memories of the machine, when they may be used."""
    if args.nvme is None:
        return ()
    from helmsman.schemas.storage import STORAGE

    names = tuple(memory.name for memory in hardware.memories if memory.kind == STORAGE)
    if not names:
        remedy = "leave --nvme out, or use a machine whose record has a memory of kind nvme"
        raise UsageError("this machine's record has no storage", field="--nvme", value=args.nvme, remedy=remedy)
    _check_storage_links(args.nvme, hardware, names)
    return names


def _check_storage_links(path: str, hardware: "Hardware", names: tuple[str, ...]) -> None:
    """Storage is read straight by the accelerator, or by the host."""
    from helmsman.planner.machine import roles

    parts = roles(hardware)
    target = parts.accelerator if path == "direct" else parts.host
    if not parts.separate or target is None:
        return
    lacking = next((name for name in names if hardware.link(name, target.memory) is None), None)
    if lacking is not None:
        other = "bounce" if path == "direct" else "direct"
        remedy = f"use --nvme {other}, or a record with such a link"
        raise UsageError(f"no link from {lacking} to {target.memory}", field="--nvme", value=path, remedy=remedy)
