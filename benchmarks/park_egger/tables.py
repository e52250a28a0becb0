"""Operation tables for batches and models that the paper published none for.

Fig 6a to 8a are of OPT-30B and 50 sequences. Everything else is derived: host, accelerator and transfers from the
rooflines of the machine's record, which were fitted to the same figures, and expansion of 4-bit groups as
a + b elements through the published rows (E-PARK-10): rooflines know no such kernel's fixed cost of 5 ms."""

from dataclasses import replace

from helmsman.lowering.tensors import block_tensors
from helmsman.planner.costs import CostModel, CostOptions
from helmsman.planner.strategies.op_split.tabulate import tabulate
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.planner.table_prices import shape_of
from helmsman.schemas.figures import Figure
from helmsman.schemas.hardware import Hardware, Link
from helmsman.schemas.operation_table import OperationRow, OperationTable

SPREAD = 0.1
"""Of derived expansion, as assumed of the published rows."""
_LINKED = ("transfer", "transfer_q4")


def with_table(frame: Frame, storage: tuple[str, ...], faster: float = 1.0) -> Frame:
    """`frame` with one table for its batch: published where there is one, else derived; its link `faster` times."""
    published = frame.roles.hardware.tables[0]
    known = published.shape == shape_of(frame.model) and published.batch == frame.workload.batch
    bare = frame.roles.hardware.model_copy(update={"tables": ()})
    blank = replace(frame, roles=replace(frame.roles, hardware=bare))
    table = published if known else derived(blank, published, storage)
    hardware = faster_link(bare, frame.roles.host.memory, frame.accelerator.memory, faster)
    linked = replace(frame, roles=replace(frame.roles, hardware=hardware))
    return linked.with_tables(_transferred(table, faster))


def derived(frame: Frame, published: OperationTable, storage: tuple[str, ...]) -> OperationTable:
    """The table of `frame` from rooflines, with the expansion that `published` shows."""
    table = tabulate(frame, CostModel(frame.roles.hardware, CostOptions()), storage)
    fixed, slope = expansion(published)
    sizes = _elements(frame, table)
    rows = tuple(
        row.model_copy(update={"decompress": _figure(fixed + slope * sizes[row.op])}) if row.op in sizes else row
        for row in table.rows
    )
    return table.model_copy(update={"rows": rows})


def expansion(published: OperationTable) -> tuple[float, float]:
    """(a, b): seconds of any expansion, and per element, through a projection and a layer of the FFN."""
    shape = published.shape
    points = [(shape.hidden * shape.hidden, published.row("q")), (shape.hidden * shape.ffn, published.row("up"))]
    (small, low), (large, high) = [(size, row.decompress.value) for size, row in points if row and row.decompress]
    slope = (high - low) / (large - small)
    return low - slope * small, slope


def faster_link(hardware: Hardware, host: str, accelerator: str, faster: float) -> Hardware:
    """The machine with the links between these memories that many times as fast; storage stays as it is.

    The bandwidth of host memory grows with a faster link, what processors read of it does not: a link that outruns
    the memory behind it would be no faster."""
    links = tuple(
        _faster(link, faster) if {link.source_memory, link.target_memory} == {host, accelerator} else link
        for link in hardware.links
    )
    memories = tuple(
        memory.model_copy(update={"bandwidth": _times(memory.bandwidth, max(1.0, faster))})
        if memory.name == host and memory.bandwidth is not None
        else memory
        for memory in hardware.memories
    )
    return hardware.model_copy(update={"links": links, "memories": memories})


def _faster(link: Link, faster: float) -> Link:
    carries = None if link.carries is None else _times(link.carries, faster)
    return link.model_copy(update={"bandwidth": _times(link.bandwidth, faster), "carries": carries})


def _transferred(table: OperationTable, faster: float) -> OperationTable:
    """The table's transfers over a link that is `faster` times as fast."""
    return table.model_copy(update={"rows": tuple(_row(row, 1 / faster) for row in table.rows)})


def _row(row: OperationRow, longer: float) -> OperationRow:
    figures = {name: getattr(row, name) for name in _LINKED}
    return row.model_copy(update={name: _times(figure, longer) for name, figure in figures.items() if figure})


def _elements(frame: Frame, table: OperationTable) -> dict[str, int]:
    """What is expanded: weights by operation, and the past tokens' keys and values."""
    sizes: dict[str, int] = {}
    for tensor in block_tensors(frame.model, 0):
        if len(tensor.shape) > 1:
            sizes[tensor.op] = sizes.get(tensor.op, 0) + tensor.elements
    cached = table.batch * (table.context - 1) * frame.model.kv_width
    return {**sizes, "scores": cached, "wv": cached}


def _times(figure: Figure, factor: float) -> Figure:
    ends = {end: getattr(figure, end) * factor for end in ("value", "p10", "p90")}
    return figure.model_copy(update=ends)


def _figure(seconds: float) -> Figure:
    return Figure(value=seconds, p10=seconds * (1 - SPREAD), p90=seconds * (1 + SPREAD), source="park-8a")
