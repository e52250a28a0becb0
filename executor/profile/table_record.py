"""From samples to an operation table, and the record with it: rows, readings, what devices and storage are."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from helmsman.executor.profile.disturbance import DISTURBANCE, disturbed_beyond, left_readings
from helmsman.executor.profile.layer import Seconds
from helmsman.executor.profile.readings import Conditions
from helmsman.executor.profile.table import TableSamples
from helmsman.executor.profile.table_devices import NOW, informed
from helmsman.executor.profile.table_place import TablePlace
from helmsman.hwdb.fit import figure
from helmsman.planner.cost.table_prices import shape_of
from helmsman.schemas.figures import DISTURBED, Figure, Source
from helmsman.schemas.hardware import OTHERS, TABLE, Device, Hardware, Link, Memory, Reading
from helmsman.schemas.operation_table import OperationRow, OperationTable, table_name
from helmsman.schemas.storage import STORAGE

TOOK = "profiling"
"""Seconds that measuring a table took (PARK-50)."""
PART = "profiling part"
"""Seconds of one part of that; of the host by so many `threads` (PARK-73); of balancing, in so many `iterations`."""
SHARE = "share"
OPERATION = "operation"
LAYER = "layer"
RESHAPE = "reshape"
"""Seconds of turning the keys, which `scores` would pay for with the layout that is not used (PARK-15)."""
SWEEP = "host by threads"
BALANCING = "balancing of storage"
TABLES = 32
"""A record keeps the newest."""


def extended(place: TablePlace, samples: TableSamples, source: Source) -> Hardware:
    """The record with the table, its readings, what was learned of the devices, and the storage that was found."""
    disks = list(_disks(place, samples))
    return joined(
        place.hardware,
        operation_table(place, samples),
        _readings(place, samples),
        {_source(place, samples): source, NOW: source},
        devices=tuple(informed(device, place, samples) for device in place.hardware.devices),
        memories=[memory for memory, _ in disks],
        links=[link for _, links in disks for link in links],
    )


def joined(
    old: Hardware,
    table: OperationTable,
    readings: Iterable[Reading],
    sources: Mapping[str, Source],
    devices: tuple[Device, ...],
    memories: Sequence[Memory],
    links: Sequence[Link],
) -> Hardware:
    """`old` with one more table, and what came with it; what has the same name is replaced.

    A table of the same key is replaced; the newest come first."""
    tables = (table, *[stored_table for stored_table in old.tables if stored_table.key != table.key][: TABLES - 1])
    kept = {stored_table.key for stored_table in tables[1:]}
    before = [
        reading for reading in old.readings if TABLE not in reading.conditions or reading.conditions[TABLE] in kept
    ]
    parts = {
        "memories": _replaced(old.memories, memories),
        "devices": devices,
        "links": _replaced(old.links, links),
        "sources": {**_sources_of(old, kept), **sources},
        "readings": (*before, *readings),
        "tables": tables,
    }
    return Hardware.model_validate({**{name: getattr(old, name) for name in Hardware.model_fields}, **parts})


def operation_table(place: TablePlace, samples: TableSamples) -> OperationTable:
    """One row per operation; a column in which an operation has nothing is left out.

    The column for storage is of all devices together, by balanced shares (PARK-42); each has a link, whose rate is its
    own then."""
    question = samples.question
    columns: dict[str, Seconds] = {
        "host": samples.host.busy,
        "accelerator": samples.accelerator.busy,
        "transfer": samples.transfers["transfer"],
        "transfer_q4": samples.transfers["transfer_q4"],
        "decompress": samples.expansion.seconds,
        "storage": samples.storage.seconds if samples.storage else {},
    }
    shares = {
        "host": samples.host.disturbed,
        "accelerator": samples.accelerator.disturbed,
        **dict.fromkeys(("transfer", "transfer_q4"), samples.moving_disturbed),
        "decompress": samples.expansion.disturbed,
        "storage": samples.storage.disturbed if samples.storage else 0.0,
    }
    source = _source(place, samples)

    def measured(op: str) -> dict[str, Figure]:
        known = {name: figure(of[op], source) for name, of in columns.items() if op in of}
        return {name: disturbed_beyond(one, shares[name]) for name, one in known.items()}

    rows = [{"op": op.name, **measured(op.name)} for op in question.operations]
    return OperationTable(
        shape=shape_of(question.model),
        batch=question.batch,
        context=question.context,
        format=question.format,
        kv_format=question.kv_format,
        host=place.host.name,
        accelerator=place.accelerator.name,
        threads=samples.host.threads,
        link_busy=True,
        key=place.key(question),
        rows=tuple(OperationRow.model_validate(row) for row in rows),
    )


def _source(place: TablePlace, samples: TableSamples) -> str:
    return table_name(place.key(samples.question))


def _sources_of(hardware: Hardware, kept: Iterable[str | None]) -> dict[str, Source]:
    """The record's sources without those of tables that are dropped."""
    wanted = {table_name(key) for key in kept if key is not None}
    ours = {table_name(table.key) for table in hardware.tables if table.key is not None}
    return {name: source for name, source in hardware.sources.items() if name not in ours - wanted}


def _disks(place: TablePlace, samples: TableSamples) -> Iterator[tuple[Memory, tuple[Link, Link]]]:
    """A memory for every storage device, and its links to the accelerator and to the host."""
    disks, share = (samples.storage.disks, samples.storage.disturbed) if samples.storage else ([], 0.0)

    def measured(values: Sequence[float]) -> Figure:
        return disturbed_beyond(figure(values, NOW), share)

    host, accelerator = (place.hardware.device(seat.name).memory for seat in (place.host, place.accelerator))
    for number, disk in enumerate(disks):
        name = "disk" if number == 0 else f"disk{number + 1}"
        memory = Memory(
            name=name,
            kind=STORAGE,
            product=str(disk.folder),
            capacity=disk.free,
            available=disk.free,
            bandwidth=measured(disk.rates),
            source=NOW,
        )
        latency = measured(disk.latency)
        to = ((f"{name}-s2d", accelerator, disk.rates), (f"{name}-s2h", host, disk.host_rates))
        direct, home = (
            Link(
                name=link,
                source_memory=name,
                target_memory=target,
                kind="file",
                bandwidth=measured(rates),
                latency=latency,
            )
            for link, target, rates in to
        )
        yield memory, (direct, home)


class _Named(Protocol):
    @property
    def name(self) -> str: ...


NamedT = TypeVar("NamedT", bound=_Named)


def _replaced(old: Sequence[NamedT], new: Sequence[NamedT]) -> tuple[NamedT, ...]:
    """The old ones, but for those of which there are new ones; then those."""
    names = {item.name for item in new}
    return (*(item for item in old if item.name not in names), *new)


def _readings(place: TablePlace, samples: TableSamples) -> Iterator[Reading]:
    """Yield the readings measured beside the columns."""
    source = _source(place, samples)

    def reading(what: str, device: str, unit: str, values: Sequence[float], given: Conditions) -> Reading:
        conditions = {TABLE: place.key(samples.question), **given}
        return Reading(what=what, device=device, conditions=conditions, unit=unit, figure=figure(values, source))

    host, accelerator = place.host.name, place.accelerator.name
    for name, times in ((host, samples.host), (accelerator, samples.accelerator)):
        yield reading("read", name, "bytes/s", times.reads, {"threads": times.threads, "pattern": "scattered"})
        for op, seconds in times.idle.items():
            yield reading(OPERATION, name, "s", seconds, {"op": op, "threads": times.threads, "link": "idle"})
    for threads, times in samples.swept.items():
        if times.busy:
            yield reading(LAYER, host, "s", [times.layer_s], {"threads": threads, "link": "busy"})
    for name, turned in samples.reshape.items():
        for link, seconds in (("idle", turned.idle), ("busy", turned.busy)):
            yield reading(RESHAPE, name, "s", seconds, {"op": "scores", "link": link, "bytes": turned.size})
    for beside, rates in samples.rates.items():
        if rates:
            yield reading("copy", place.link.name, "bytes/s", rates, {"beside": beside})
    for number, disk in enumerate(samples.storage.disks if samples.storage else []):
        given: Conditions = {"device": number, "folder": str(disk.folder), "direct": int(disk.direct)}
        yield reading(SHARE, accelerator, "share", [disk.share], given)
    yield reading(TOOK, host, "s", [samples.took_s], {})
    for part, took, given in _parts(samples):
        yield reading(PART, host, "s", [took], {"part": part, **given})
    for part, device, share in _disturbances(place, samples):
        if share > DISTURBED:
            yield reading(DISTURBANCE, device, "share", [share], {"of": part})
    yield from left_readings(samples.left, host, {TABLE: place.key(samples.question)}, source)
    if samples.others is not None:
        yield reading(OTHERS, host, "share", [samples.others], {})


def _disturbances(place: TablePlace, samples: TableSamples) -> Iterator[tuple[str, str, float]]:
    """Of every part of a table its name, the device that worked, and the share of the time that others took."""
    host, accelerator = place.host.name, place.accelerator.name
    yield "host", host, samples.host.disturbed
    yield "accelerator", accelerator, samples.accelerator.disturbed
    yield from (("turning of keys", device, turned.disturbed) for device, turned in samples.reshape.items())
    yield "expansion", accelerator, samples.expansion.disturbed
    if samples.storage is not None:
        yield "storage", accelerator, samples.storage.disturbed


def _parts(samples: TableSamples) -> Iterator[tuple[str, float, Conditions]]:
    """Yield the cost of measuring, part by part; the sweep and the balancing also by what they tried."""
    for part, took in samples.parts.items():
        yield part, took, {}
    for threads, times in samples.swept.items():
        if times.busy:
            yield SWEEP, times.took_s, {"threads": threads}
    balancing = samples.storage.balancing if samples.storage else None
    if samples.storage is not None and balancing is not None:
        yield BALANCING, samples.storage.balancing_s, {"iterations": len(balancing.history)}
