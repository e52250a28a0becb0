"""The names in a hardware record: different where they name, known where they refer to a part or a source of it."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from helmsman.schemas.base import mistake
from helmsman.schemas.figures import Figure
from helmsman.schemas.repeated_names import first_repeated

if TYPE_CHECKING:
    from helmsman.schemas.hardware import Device, Hardware, Link


def check_names(hardware: "Hardware") -> None:
    """Raise the mistake of the first name that is used twice, has a colon or refers to nothing in `hardware`."""
    devices, links = [device.name for device in hardware.devices], [link.name for link in hardware.links]
    memories = [memory.name for memory in hardware.memories]
    _all_different("memories", memories)
    _all_different("devices and links", devices + links)
    _no_lanes(hardware)
    _all_different("links", [f"{link.source_memory} to {link.target_memory}" for link in hardware.links])
    _all_known("memory", _memories_named(hardware), memories)
    _all_known("source", _sources_named(hardware), hardware.sources)
    _all_known("link", _links_named(hardware), links)
    _all_known("device", _devices_named(hardware), devices)


def _no_lanes(hardware: "Hardware") -> None:
    """Lanes of a device or link are called `name:lane`, so no name has a colon."""
    devices, links = [device.name for device in hardware.devices], [link.name for link in hardware.links]
    for field, names in (("devices", devices), ("links", links)):
        for place, name in enumerate(names):
            if ":" in name:
                raise mistake("a name with a colon", "leave the colon out", f"{field}.{place}.name", name)


def _all_different(field: str, names: list[str]) -> None:
    twice = first_repeated(names)
    if twice is not None:
        raise mistake("must be unique", "rename or remove one of them", field, twice)


def _all_known(what: str, used: Iterable[tuple[str, str]], known: Iterable[str]) -> None:
    """`used`: (field, name) pairs."""
    names = dict.fromkeys(known)
    for field, name in used:
        if name not in names:
            remedy = f"use one of {', '.join(list(names)[:8])}" if names else f"add the {what}"
            raise mistake(f"unknown {what}", remedy, field, name)


def _memories_named(hardware: "Hardware") -> Iterator[tuple[str, str]]:
    for place, memory in enumerate(hardware.memories):
        if memory.shares is not None:
            yield f"memories.{place}.shares", memory.shares
    for place, device in enumerate(hardware.devices):
        yield f"devices.{place}.memory", device.memory
    for place, link in enumerate(hardware.links):
        yield f"links.{place}.source_memory", link.source_memory
        yield f"links.{place}.target_memory", link.target_memory
        if link.footprint is not None:
            yield f"links.{place}.footprint.memory", link.footprint.memory


def _links_named(hardware: "Hardware") -> Iterator[tuple[str, str]]:
    for place, link in enumerate(hardware.links):
        if link.shares is not None:
            yield f"links.{place}.shares", link.shares


def _devices_named(hardware: "Hardware") -> Iterator[tuple[str, str]]:
    for place, link in enumerate(hardware.links):
        yield from ((f"links.{place}.slows", device) for device in link.slows or ())
        yield from ((f"links.{place}.interrupts", device) for device in link.interrupts or ())
    for place, table in enumerate(hardware.tables):
        yield f"tables.{place}.host", table.host
        yield f"tables.{place}.accelerator", table.accelerator
    if hardware.between_passes is not None:
        yield from (("between_passes.begin", device) for device in hardware.between_passes.begin)


def _sources_named(hardware: "Hardware") -> Iterator[tuple[str, str]]:
    for place, memory in enumerate(hardware.memories):
        yield f"memories.{place}.source", memory.source
        yield f"memories.{place}.bandwidth.source", memory.bandwidth.source
        if memory.joint is not None:
            yield f"memories.{place}.joint.source", memory.joint.source
        for products in memory.joint_products:
            yield f"memories.{place}.joint_products.{products.format}.source", products.share.source
        if memory.joint_compute is not None:
            yield f"memories.{place}.joint_compute.source", memory.joint_compute.source
    for place, link in enumerate(hardware.links):
        yield f"links.{place}.bandwidth.source", link.bandwidth.source
        yield f"links.{place}.latency.source", link.latency.source
        if link.carries is not None:
            yield f"links.{place}.carries.source", link.carries.source
        if link.pageable is not None:
            yield f"links.{place}.pageable.source", link.pageable.source
        if link.managed is not None:
            yield f"links.{place}.managed.source", link.managed.source
        for field, value in (("overhead", link.overhead), ("handover", link.handover)):
            if value is not None:
                yield f"links.{place}.{field}.source", value.source
        for name, figure in (link.slows or {}).items():
            yield f"links.{place}.slows.{name}.source", figure.source
        for name, interrupt in (link.interrupts or {}).items():
            yield f"links.{place}.interrupts.{name}.small.source", interrupt.small.source
            yield f"links.{place}.interrupts.{name}.large.source", interrupt.large.source
        yield from ((f"links.{place}.footprint", figure.source) for figure in _footprint_figures(link))
    for place, device in enumerate(hardware.devices):
        yield from ((f"devices.{place}", figure.source) for figure in _figures(device))
    if hardware.between_passes is not None:
        for name, figure in hardware.between_passes.begin.items():
            yield f"between_passes.begin.{name}.source", figure.source
        yield "between_passes.submission.source", hardware.between_passes.submission.source
    for place, reading in enumerate(hardware.readings):
        yield f"readings.{place}.figure.source", reading.figure.source
    for place, table in enumerate(hardware.tables):
        yield from ((f"tables.{place}.rows", figure.source) for row in table.rows for figure in row.figures())


def _footprint_figures(link: "Link") -> list[Figure]:
    if link.footprint is None:
        return []
    return [*link.footprint.share, *([link.footprint.cached] if link.footprint.cached else [])]


def _figures(device: "Device") -> list[Figure]:
    optional = (
        device.launch,
        None if device.dispatch is None else device.dispatch.seconds,
        device.launching,
        device.overhead,
        *(device.overheads or {}).values(),
        device.prompt_launch,
        device.prompt_overhead,
        device.join,
        device.request,
        device.elementwise,
        device.decompress,
        device.cache_read,
    )
    figures = [device.read, *(compute.flops for compute in device.compute)]
    figures += [figure for figure in optional if figure is not None]
    return figures + [share for curve in device.efficiency for share in curve.share]
