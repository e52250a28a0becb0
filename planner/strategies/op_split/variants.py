"""Operation tables of workload variants, derived from tables of plain attention (PARK-66).

Seconds follow the work of `lowering.variants`, which states it: W is an operation's work in the variant over its work
in the plain layer, at the table's context. Nothing here needs more than a table, so published, measured and derived
ones are treated alike. Park & Egger 5.6 combine both methods with their splits; its text and figures are not part of
the copy at hand, and neither method's own latencies are published per operation, so the rest is assumed:

- scores, wv, attention on either device: W = bytes of cache read. The choice of tokens is part of scores: `select` of
  the keys of all tokens, and half a softmax over all tokens, which reads its scores once and writes none.
- softmax: W = activation bytes.
- transfer, transfer_q4: W = bytes of cache moved, gathered for nothing.
- decompress: a + b elements (E-PARK-10). a and b >= 0 are fitted to the table's rows; what a variant expands less
  saves only b. With one size in the table a = 0.
- Cached activations: attention is one row. Its seconds are those of scores, softmax and wv by bytes (X is read once
  instead of K and V), and not less than its FLOPs at the best rate that the column's linear layers reach. K and V
  project every head's query and outcome: heads / kv_heads of their FLOPs. One transfer and one decompression of X.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from helmsman.lowering.operation import DIVIDED, Formats, Operation
from helmsman.lowering.ops import LINEAR_OPS
from helmsman.lowering.tensors import block_tensors
from helmsman.lowering.variants import attending, cached_elements, check_cache_use, varied_ops
from helmsman.planner.cost.expansion import line
from helmsman.planner.cost.table_prices import shape_of
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.cache_use import CacheUse
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.figures import Figure, Source
from helmsman.schemas.model import Model
from helmsman.schemas.operation_table import OperationRow, OperationTable

CACHED = ("scores", "wv", "attention")
COMPUTED = ("host", "accelerator")
MOVED = ("transfer", "transfer_q4")


def with_cache_use(frame: Frame) -> Frame:
    """The question with a derived table for its variant before the tables that it is derived from, and their sources.

    Raises UsageError for a variant that the model does not have."""
    check_cache_use(frame.model, frame.cache)
    hardware = frame.roles.hardware
    mine = [table for table in hardware.tables if table.shape == shape_of(frame.model)]
    given = {(table.batch, table.format, table.kv_format) for table in mine if table.cache == frame.cache}
    wanted = [t for t in mine if t.cache.plain and (t.batch, t.format, t.kv_format) not in given]
    if frame.cache.plain or not wanted:
        return frame
    derived = [varied_table(table, frame.cache, frame.model) for table in wanted]
    sources = dict(_sources(hardware.sources, wanted, derived))
    hardware = hardware.model_copy(update={"sources": {**hardware.sources, **sources}})
    return replace(frame, roles=replace(frame.roles, hardware=hardware)).with_tables(*derived)


def varied_table(table: OperationTable, use: CacheUse, model: Model) -> OperationTable:
    """`table`, measured on plain attention of `model`, as it would be under `use`.

    Figures that change name the source `theirs (variant)`. Raises BadInputError when `table` is not plain, UsageError
    when `model` has no such variant."""
    check_cache_use(model, use)
    if not table.cache.plain:
        remedy = "derive variants from the table that was measured"
        raise BadInputError("this table is of a variant already", field="cache", value=table.cache.label, remedy=remedy)
    if use.plain:
        return table
    work = _Work(table, use, model)
    rows = tuple(work.rows())
    return table.model_copy(update={"cache": use, "rows": rows})


@dataclass(frozen=True)
class _Work:
    """A plain table and the work of its rows, before and under the variant."""

    table: OperationTable
    use: CacheUse
    model: Model

    def rows(self) -> Iterator[OperationRow]:
        """The rows of the variant, in order of computation."""
        fused = self._fused_row() if self.use.holds == "activations" else None
        for row in self.table.rows:
            if fused is None or row.op not in (*DIVIDED, "attention", "v"):
                yield self._row(row)
            elif row.op in ("scores", "attention"):
                yield fused
                yield self._row(next(row for row in self.table.rows if row.op == "v"))

    def _row(self, row: OperationRow) -> OperationRow:
        if row.op in ("k", "v") and self.use.holds == "activations":
            return self._scaled(row, COMPUTED, self.model.dense.heads / self.model.dense.kv_heads)
        if row.op == "softmax":
            return self._scaled(row, COMPUTED, self._ratio("softmax", "activation_bytes"))
        if row.op not in CACHED:
            return row
        return self._moving(self._chosen(self._scaled(row, COMPUTED, self._ratio(row.op, "kv_read"))))

    def _moving(self, row: OperationRow, rows: int = 1) -> OperationRow:
        """The cache's way to the accelerator, and its expansion there; the plain layer had it in so many rows."""
        before, after = self._elements(row.op)
        fixed, slope = self._expansion
        row = self._scaled(row, MOVED, after / before)
        plain = rows * fixed + slope * before
        return self._scaled(row, ("decompress",), (fixed + slope * after) / plain) if plain > 0 else row

    def _chosen(self, row: OperationRow) -> OperationRow:
        """Half a softmax over every past token for the choice, where there is one."""
        softmax = self.table.row("softmax")
        if self.use.select == 0 or softmax is None or row.op == "wv":
            return row
        share = 0.5 * (self.table.context - 1) / self.table.context
        changed = {}
        for column in COMPUTED:
            mine: Figure | None = getattr(row, column)
            more: Figure | None = getattr(softmax, column)
            if mine is not None and more is not None:
                changed[column] = _plus(mine, more, share)
        return row.model_copy(update=changed)

    def _fused_row(self) -> OperationRow:
        """Attention on activations, from the rows of plain attention."""
        parts = [row for row in self.table.rows if row.op in (*DIVIDED, "attention")]
        row = parts[0].model_copy(update={"op": "attention"})
        for part in parts[1:]:
            row = _joined(row, part)
        read = self._ratio("attention", "kv_read")
        row = self._chosen(self._scaled(row, COMPUTED, read))
        changed = {column: self._at_least(getattr(row, column), column) for column in COMPUTED}
        return self._moving(row.model_copy(update=changed), 2 if len(parts) > 1 else 1)

    def _at_least(self, figure: Figure | None, column: str) -> Figure | None:
        """`figure`, or attention's FLOPs at the column's best rate of linear layers where that takes longer."""
        rates = [
            self._before[row.op].flops / seconds.value
            for row in self.table.rows
            if row.op in LINEAR_OPS and (seconds := getattr(row, column)) is not None and seconds.value > 0
        ]
        if figure is None or not rates or figure.value == 0:
            return figure
        return _times(figure, max(1.0, self._after["attention"].flops / max(rates) / figure.value), figure.source)

    def _scaled(self, row: OperationRow, columns: tuple[str, ...], ratio: float) -> OperationRow:
        changed = {}
        for column in columns:
            figure: Figure | None = getattr(row, column)
            if figure is not None and ratio != 1.0:
                changed[column] = _times(figure, ratio, source_of(figure.source, self.use))
        return row.model_copy(update=changed)

    def _ratio(self, op: str, field: str) -> float:
        """W: an operation's work under the variant over its plain work."""
        before, after = self._before[op], self._after[op]
        return float(getattr(after, field) / getattr(before, field))

    def _elements(self, op: str) -> tuple[int, int]:
        """Cached elements that an operation reads of past tokens: plain, and under the variant."""
        count = (2 if op == "attention" else 1) * self.table.batch * self.model.dense.kv_width
        kept = attending(self.use, self._step).past
        return count * self._step.past, cached_elements(self.model, self.use, count * kept)

    @property
    def _step(self) -> Iteration:
        return Iteration(1, "decode", self.table.batch, 1, self.table.context)

    @property
    def _before(self) -> dict[str, Operation]:
        return self._operations(CacheUse())

    @property
    def _after(self) -> dict[str, Operation]:
        return self._operations(self.use)

    def _operations(self, use: CacheUse) -> dict[str, Operation]:
        """By name; attention whole and, where the variant has them, its parts."""
        formats = Formats(self.table.format, self.table.kv_format)
        forms = (False,) if use.holds == "activations" else (True, False)
        return {op.name: op for form in forms for op in varied_ops(self.model, 0, self._step, formats, form, use)}

    @property
    def _expansion(self) -> tuple[float, float]:
        """(a, b): seconds of an expansion, and per element, fitted to the table's rows."""
        weights: dict[str, int] = {}
        for tensor in block_tensors(self.model, 0):
            weights[tensor.op] = weights.get(tensor.op, 0) + tensor.elements
        past = self.table.batch * self._step.past * self.model.dense.kv_width
        sizes = {**weights, "scores": past, "wv": past, "attention": 2 * past}
        points = [(float(sizes[row.op]), row.decompress.value) for row in self.table.rows if row.decompress is not None]
        return line(points) if points else (0.0, 0.0)


def source_of(source: str, use: CacheUse) -> str:
    """The key of what is derived from `source` for a variant."""
    return f"{source} ({use.label})"


def _sources(
    known: dict[str, Source], plain: list[OperationTable], derived: list[OperationTable]
) -> Iterator[tuple[str, Source]]:
    """The sources that derived tables name and the machine lacks."""
    named = {figure.source for table in derived for row in table.rows for figure in row.figures()}
    origins = {figure.source for table in plain for row in table.rows for figure in row.figures()}
    for table in derived:
        for origin in sorted(origins):
            key = source_of(origin, table.cache)
            if key in named and key not in known:
                where = f"derived by work for attention on {table.cache.label}: {known[origin].where}"
                yield key, Source(kind="assumed", where=where[:200])


def _times(figure: Figure, ratio: float, source: str) -> Figure:
    low, high = figure.p10 * ratio, figure.p90 * ratio
    value = min(max(figure.value * ratio, low), high)
    return figure.model_copy(update={"value": value, "p10": low, "p90": high, "source": source})


def _plus(figure: Figure, other: Figure, share: float) -> Figure:
    sums = {end: getattr(figure, end) + share * getattr(other, end) for end in ("value", "p10", "p90")}
    return figure.model_copy(update=sums)


def _joined(row: OperationRow, part: OperationRow) -> OperationRow:
    """One row for two operations; a column that only one of them has is that one's."""
    changed = {}
    for column in (*COMPUTED, *MOVED, "decompress"):
        mine: Figure | None = getattr(row, column)
        other: Figure | None = getattr(part, column)
        if other is not None:
            changed[column] = other if mine is None else _plus(mine, other, 1.0)
    return row.model_copy(update=changed)
