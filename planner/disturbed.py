"""Figures of a record that others disturbed while they were measured: which, how much, and the record without."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from helmsman.schemas.figures import Figure, undisturbed_figure
from helmsman.schemas.hardware import Device, Hardware, Link

_DEVICE = ("read", "launch", "overhead", "join", "request", "elementwise")


def disturbed_figures(hardware: Hardware) -> Iterator[tuple[str, str, Figure]]:
    """Of every disturbed figure the device, link or memory it is of, what it is, and the figure."""
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
        yield memory.name, "bandwidth", memory.bandwidth
        yield memory.name, "joint bandwidth", memory.joint
    if hardware.between_passes is not None:
        for name, figure in hardware.between_passes.begin.items():
            yield name, "time between passes", figure
        yield hardware.devices[0].name, "submission", hardware.between_passes.submission


def _of_device(device: Device) -> Iterator[tuple[str, Figure | None]]:
    yield from ((name, getattr(device, name)) for name in _DEVICE)
    for compute in device.compute:
        yield f"{compute.phase} FLOP/s {compute.format}", compute.flops
    for curve in device.efficiency:
        unit = "bytes" if curve.bound == "memory" else "tokens"
        for at, share in zip(curve.at, curve.share, strict=True):
            yield f"{curve.op} {curve.format} at {at:.0f} {unit}", share


def _of_link(link: Link) -> Iterator[tuple[str, Figure | None]]:
    yield "bandwidth", link.bandwidth
    yield "latency", link.latency
    yield "hand-over", link.handover
    for device, slowing in (link.slows or {}).items():
        yield f"slows {device}", slowing


def _without(part: Any) -> Any:
    """A value of a document, of the same type, with every Figure within as its samples say."""
    if isinstance(part, Figure):
        return undisturbed_figure(part)
    if isinstance(part, BaseModel):
        return part.model_copy(update={name: _without(getattr(part, name)) for name in type(part).model_fields})
    if isinstance(part, tuple):
        return tuple(_without(each) for each in part)
    if isinstance(part, dict):
        return {key: _without(value) for key, value in part.items()}
    return part
