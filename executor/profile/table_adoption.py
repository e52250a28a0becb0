"""A table that another record of this machine has, in this record: what was measured once is not measured again
(PARK-49)."""

from collections.abc import Iterable
from pathlib import Path

from helmsman.executor.profile.layer_times import restated
from helmsman.executor.profile.question import LayerQuestion
from helmsman.executor.profile.table_devices import NOW
from helmsman.executor.profile.table_place import TablePlace
from helmsman.executor.profile.table_record import joined
from helmsman.schemas.figures import scaled_figure
from helmsman.schemas.hardware import TABLE, Device, Efficiency, Hardware, Memory
from helmsman.schemas.operation_table import OperationRow, OperationTable, table_name
from helmsman.schemas.storage import STORAGE


def adopted(place: TablePlace, other: Hardware, question: LayerQuestion) -> Hardware | None:
    """The record of `place` with what `other` measured of `question`; None when it has not.

    Seconds of operations are restated at this record's plain reads, as measured ones are; rates of expansion, of
    turning caches and of storage come along where this record has none."""
    key = place.key(question)
    table = next((table for table in other.tables if table.key == key), None)
    if table is None:
        return None
    disks = list(_disks(place.hardware, other, question))
    return joined(
        place.hardware,
        _restated(table, place, other, question),
        [reading for reading in other.readings if reading.conditions.get(TABLE) == key],
        {name: other.sources[name] for name in (table_name(key), NOW) if name in other.sources},
        devices=tuple(_informed(device, other) for device in place.hardware.devices),
        memories=disks,
        links=[link for link in other.links if link.source_memory in {disk.name for disk in disks}],
    )


def _restated(table: OperationTable, place: TablePlace, other: Hardware, question: LayerQuestion) -> OperationTable:
    sizes = {op.name: op.memory_bytes for op in question.operations}
    reads = {
        column: (other.device(seat.name).read.value, place.read(seat))
        for column, seat in (("host", place.host), ("accelerator", place.accelerator))
    }

    def row(of: OperationRow) -> OperationRow:
        figures = {column: getattr(of, column) for column in reads}
        return of.model_copy(
            update={
                column: scaled_figure(figure, restated(sizes[of.op], figure.value, *reads[column]))
                for column, figure in figures.items()
                if figure is not None and figure.value > 0
            }
        )

    return table.model_copy(update={"rows": tuple(row(table_row) for table_row in table.rows)})


def _informed(device: Device, other: Hardware) -> Device:
    """`device` with what only measuring a table says of it, where `other` knows and it does not."""
    known = next((other_device for other_device in other.devices if other_device.name == device.name), device)
    turning = [
        efficiency
        for efficiency in known.efficiency
        if efficiency.op == "reshape" and not _has(device.efficiency, efficiency)
    ]
    update = {"decompress": device.decompress or known.decompress, "efficiency": (*device.efficiency, *turning)}
    return device.model_copy(update=update)


def _has(curves: Iterable[Efficiency], one: Efficiency) -> bool:
    return any((curve.op, curve.format) == (one.op, one.format) for curve in curves)


def _disks(here: Hardware, other: Hardware, question: LayerQuestion) -> Iterable[Memory]:
    """The storage that the question names, as the other record has it."""
    taken = {memory.name for memory in here.memories}
    folders = {folder.resolve() for folder in question.storage}
    return (
        memory
        for memory in other.memories
        if memory.kind == STORAGE and Path(memory.product or "").resolve() in folders and memory.name not in taken
    )
