"""Costs of expanding 4-bit groups for work that nobody measured: a + b bytes through a machine's operation tables.

An expansion is a few kernels over the whole piece: constant work to start them, and bytes to read and write. Park &
Egger's rows (Fig 8a) lie on such a line to 1 % (E-PARK-10). It belongs to the device and its kernels, so it holds for
other batches and other models too. Below the smallest piece that was measured nothing says whether the constant stays
(launches) or shrinks with the piece (allocations): the cost is assumed between both, and the interval covers them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from helmsman.lowering.graph import Task
from helmsman.lowering.nearest_format import ASSUMED
from helmsman.schemas.figures import Figure, scaled_figure
from helmsman.schemas.formats import size_of
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.operation_table import BlockShape, OperationTable


@dataclass(frozen=True, slots=True)
class Expansion:
    """Seconds of an expansion that reads and writes n bytes: `fixed` + `slope` n from `smallest` bytes on.

    `low`, `high`: the relative spread of the rows; `source` of their figures; `beside`: the link that was moving data
    meanwhile."""

    fixed: float
    slope: float
    smallest: float
    low: float
    high: float
    source: str
    beside: str | None

    def seconds(self, moved: float, count: int = 1) -> Figure:
        """Of `count` expansions that together read and write `moved` bytes, as much each."""
        return scaled_figure(self._one(moved / count), count)

    def _one(self, moved: float) -> Figure:
        line = self.fixed + self.slope * moved
        if moved >= self.smallest:
            return Figure(value=line, p10=line * self.low, p90=line * self.high, source=self.source)
        share = (self.fixed + self.slope * self.smallest) * moved / self.smallest
        middle = (line * share) ** 0.5
        return Figure(value=middle, p10=share * self.low, p90=line * self.high, source=ASSUMED)


def expansion(hardware: Hardware, device: str) -> Expansion | None:
    """The line through the expansions that tables of `device` hold; None without any."""
    tables = [point for table in hardware.tables if table.accelerator == device for point in _points(table)]
    if not tables:
        return None
    points = [(moved, figure.value) for moved, figure in tables]
    fixed, slope = line(points)
    source, table = tables[0][1].source, next(t for t in hardware.tables if t.accelerator == device)
    return Expansion(
        fixed=fixed,
        slope=slope,
        smallest=min(moved for moved, _ in points),
        low=min(figure.p10 / figure.value for _, figure in tables),
        high=max(figure.p90 / figure.value for _, figure in tables),
        source=source,
        beside=busy_link(table, hardware),
    )


def busy_link(table: OperationTable, hardware: Hardware) -> str | None:
    """The link that was moving weights while `table` was measured (PARK-47)."""
    host, accelerator = (hardware.device(name).memory for name in (table.host, table.accelerator))
    link = hardware.link(host, accelerator)
    return link.name if link is not None and table.link_busy else None


def _points(table: OperationTable) -> Iterator[tuple[float, Figure]]:
    """(bytes read and written, seconds) of the rows of a table of plain attention."""
    if not table.cache.plain:
        return
    sizes = {**_matrices(table.shape), **_caches(table)}
    for row in table.rows:
        if row.decompress is not None and row.decompress.value > 0 and row.op in sizes:
            elements, times = sizes[row.op], 2 if row.op == "attention" else 1
            moved = float(size_of(elements, "q4") + size_of(elements, table.format))
            yield moved, scaled_figure(row.decompress, 1 / times)


def _matrices(shape: BlockShape) -> dict[str, int]:
    """Elements of a layer's matrices; vectors are never compressed."""
    own, kept = shape.hidden * shape.heads * shape.head_dim, shape.hidden * shape.kv_heads * shape.head_dim
    wide = shape.hidden * shape.ffn
    return {"q": own, "k": kept, "v": kept, "o": own, "gate": wide, "up": wide, "down": wide}


def _caches(table: OperationTable) -> dict[str, int]:
    """Elements of the past tokens' keys, or values; attention that is one row has both, one after the other."""
    past = table.batch * (table.context - 1) * table.shape.kv_heads * table.shape.head_dim
    return dict.fromkeys(("scores", "wv", "attention"), past) if past else {}


def pieces(task: Task) -> int:
    """How many tensors an expansion works on: keys and values are two."""
    return 2 if (task.operation, task.payload) == ("attention", "cache") else 1


def line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Least squares a + b x with a, b >= 0; through the origin where all x are one."""
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else mean_y / mean_x
    slope = min(max(slope, 0.0), mean_y / mean_x)
    return mean_y - slope * mean_x, slope
