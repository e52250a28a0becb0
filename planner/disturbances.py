"""Figures of a record that others disturbed while they were measured: which, how much, and the record without."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from helmsman.schemas.figures import Figure, undisturbed_figure
from helmsman.schemas.hardware import Device, Hardware, Link
from helmsman.schemas.operation_table import COLUMNS

BANDWIDTH = "memory bandwidth"
JOINT = "joint bandwidth"
JOINT_COMPUTE = "joint arithmetic"
"""These three are figures of memories; links may have the same names."""
BETWEEN_PASSES = "time between passes"
"""Of the device that ends a pass."""
PASSES = "passes"
"""Whose `submission` is, whatever device ends them."""

_DEVICE = (
    "read",
    "launch",
    "overhead",
    "prompt_launch",
    "prompt_overhead",
    "join",
    "look_up",
    "request",
    "elementwise",
    "decompress",
)


def disturbed_figures(hardware: Hardware) -> Iterator[tuple[str, str, Figure]]:
    """Of every disturbed figure the device, link, memory or operation table it is of (or `PASSES`), what it is, and the
    figure."""
    for owner, what, figure in _figures(hardware):
        if figure is not None and figure.disturbed is not None:
            yield owner, what, figure


def undisturbed(hardware: Hardware) -> Hardware:
    """The record as if nothing had been disturbed: the same values, spreads of their samples alone."""
    sound: Hardware = _without(hardware)
    return sound


def _figures(hardware: Hardware) -> Iterator[tuple[str, str, Figure | None]]:
    for device in hardware.devices:
        for what, figure in _of_device(device):
            yield device.name, what, figure
    for link in hardware.links:
        for what, figure in _of_link(link):
            yield link.name, what, figure
    for memory in hardware.memories:
        yield memory.name, BANDWIDTH, memory.bandwidth
        yield memory.name, JOINT, memory.joint
        yield memory.name, JOINT_COMPUTE, memory.joint_compute
        yield from ((memory.name, JOINT, joint_product.share) for joint_product in memory.joint_products)
    if hardware.between_passes is not None:
        for name, figure in hardware.between_passes.begin.items():
            yield name, BETWEEN_PASSES, figure
        yield PASSES, "submission", hardware.between_passes.submission
    for table in hardware.tables:
        for row in table.rows:
            yield from ((table.name, f"{row.op} {column}", getattr(row, column)) for column in COLUMNS)


def _of_device(device: Device) -> Iterator[tuple[str, Figure | None]]:
    yield from ((name, getattr(device, name)) for name in _DEVICE)
    yield from ((f"overhead of {kind}", figure) for kind, figure in (device.overheads or {}).items())
    for compute in device.compute:
        yield f"{compute.phase} FLOP/s {compute.format}", compute.flops
    for curve in device.efficiency:
        unit = "bytes" if curve.bound == "memory" else "tokens"
        for at, share in zip(curve.at, curve.share, strict=True):
            yield f"{curve.op} {curve.format} at {at:.0f} {unit}", share


def _of_link(link: Link) -> Iterator[tuple[str, Figure | None]]:
    yield "bandwidth", link.bandwidth
    yield "latency", link.latency
    yield "pageable share", link.pageable
    yield "overhead", link.overhead
    yield "hand-over", link.handover
    for device, slowing in (link.slows or {}).items():
        yield f"slows {device}", slowing
    for device, parts in (link.interrupts or {}).items():
        yield f"interrupts {device}, small copies", parts.small
        yield f"interrupts {device}, large copies", parts.large


def _without(part: Any) -> Any:
    """A value of a document, of the same type, with every Figure within as its samples say."""
    if isinstance(part, Figure):
        return undisturbed_figure(part)
    if isinstance(part, BaseModel):
        return part.model_copy(update={name: _without(getattr(part, name)) for name in type(part).model_fields})
    if isinstance(part, tuple):
        return tuple(_without(member) for member in part)
    if isinstance(part, dict):
        return {key: _without(value) for key, value in part.items()}
    return part
