"""The paper's machine with a link of another speed: its record, and the transfers of its operation tables."""

from dataclasses import replace

from helmsman.planner.strategies.streaming.place import Frame
from helmsman.schemas.figures import scaled_figure
from helmsman.schemas.hardware import Hardware, Link
from helmsman.schemas.operation_table import OperationRow, OperationTable

_LINKED = ("transfer", "transfer_q4")


def with_link(frame: Frame, faster: float) -> Frame:
    """`frame` on its machine with a link to the accelerator that is `faster` times as fast."""
    hardware = faster_link(frame.roles.hardware, frame.roles.host.memory, frame.accelerator.memory, faster)
    tables = tuple(_transferred(table, faster) for table in hardware.tables)
    return replace(frame, roles=frame.roles.on(hardware.model_copy(update={"tables": tables})))


def faster_link(hardware: Hardware, host: str, accelerator: str, faster: float) -> Hardware:
    """The machine with the links between these memories that many times as fast; storage stays as it is.

    The bandwidth of host memory grows with a faster link, what processors read of it does not: a link that outruns
    the memory behind it would be no faster."""
    links = tuple(
        _faster(link, faster) if {link.source_memory, link.target_memory} == {host, accelerator} else link
        for link in hardware.links
    )
    memories = tuple(
        memory.model_copy(update={"bandwidth": scaled_figure(memory.bandwidth, max(1.0, faster))})
        if memory.name == host and memory.bandwidth is not None
        else memory
        for memory in hardware.memories
    )
    return hardware.model_copy(update={"links": links, "memories": memories})


def _faster(link: Link, faster: float) -> Link:
    carries = None if link.carries is None else scaled_figure(link.carries, faster)
    return link.model_copy(update={"bandwidth": scaled_figure(link.bandwidth, faster), "carries": carries})


def _transferred(table: OperationTable, faster: float) -> OperationTable:
    """The table's transfers over a link that is `faster` times as fast."""
    return table.model_copy(update={"rows": tuple(_row(row, 1 / faster) for row in table.rows)})


def _row(row: OperationRow, longer: float) -> OperationRow:
    figures = {name: getattr(row, name) for name in _LINKED}
    return row.model_copy(update={name: scaled_figure(figure, longer) for name, figure in figures.items() if figure})
