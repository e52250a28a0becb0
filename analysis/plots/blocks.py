"""Rows and blocks of a Gantt chart: the spans around some decoder layers, told apart as the paper's figures do.

Rows (Park & Egger Fig 5-8): CPU, PCIe (weights), PCIe (cache), storage by link, decompression, GPU, device to host."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from helmsman.lowering.bodies.attention import NEW_KV
from helmsman.lowering.caches import CACHE_OF
from helmsman.lowering.dataflow import TOKEN
from helmsman.lowering.graph import CACHED, Payload
from helmsman.lowering.task_names import TaskName, read_name
from helmsman.planner.strategies.streaming.division import PAPER_NAMES
from helmsman.schemas.errors import UsageError
from helmsman.schemas.hardware import Device, Hardware, Link, lane_owner
from helmsman.schemas.storage import STORAGE
from helmsman.schemas.trace import Span

GROUPS = {
    "Norms": ("norm1", "norm2", "final_norm"),
    "Q, K, V": ("q", "k", "v", "append"),
    "Attention, KV": ("attention", "scores", "softmax", "wv", "kv", "keys", "values", "new_kv"),
    "Output": ("o",),
    "Feed-forward": ("gate", "up", "down"),
    "Embedding, head": ("embedding", "positions", "head", "token"),
    "Activations": (),
    "Pinning, reshape": (),
}
"""Colour groups: the operations in each, and two for what is not an operation."""

_GROUP_OF = {op: group for group, ops in GROUPS.items() for op in ops}
_NAMES = {
    **PAPER_NAMES,
    "append": "Append",
    "attention": "Attention",
    "keys": "Keys",
    "values": "Values",
    "kv": "KV",
    "new_kv": "new KV",
    "final_norm": "LN",
    "embedding": "Embedding",
    "head": "Head",
    "token": "Token",
    "hidden": "hidden",
}
_ORDER = ("CPU", "weights", "cache", "activations", "storage", "decompress", "GPU", "D2H", "link")


@dataclass(frozen=True, slots=True)
class ChartSpan:
    """A span in the chart: seconds from the chart's start; `inside`: of the layers asked for, not of a neighbour.

    `chunk`: rows or heads of a divided operation; `batch`: which of a zig-zag pass, None for what all batches share;
    `layer` -1 outside blocks."""

    start: float
    end: float
    name: str
    chunk: tuple[int, int] | None
    batch: int | None
    layer: int
    group: str
    inside: bool


@dataclass(frozen=True, slots=True)
class ChartRow:
    """A row of the chart: what it is called, and tracks of blocks that do not overlap."""

    name: str
    tracks: tuple[tuple[ChartSpan, ...], ...]


@dataclass(frozen=True, slots=True)
class Chart:
    """Rows from top to bottom over `seconds`: from the first computation of `layers` until all of them are done and the
    layer behind has begun, so that transfers it has to wait for are seen."""

    rows: tuple[ChartRow, ...]
    seconds: float
    layers: range


def chart(spans: Iterable[Span], hardware: Hardware, layers: range) -> Chart:
    """The chart of `layers` from spans of one pass.

    Raises UsageError when the pass computed none of them."""
    every = [span for span in spans if span.end_s > span.start_s]
    places = _Places(hardware)
    computed = [span for span in every if span.layer in layers and places.computes(span)]
    if not computed:
        remedy = f"name layers from 0 to {max((span.layer for span in every), default=0)}"
        raise UsageError("these layers were not computed", field="layers", value=_layers_text(layers), remedy=remedy)
    start = min(span.start_s for span in computed)
    following = [span.start_s for span in every if span.layer == layers.stop and places.computes(span)]
    end = max(max(span.end_s for span in computed), min(following, default=start))
    shown = [span for span in every if span.end_s > start and span.start_s < end]
    together = not any(read_name(span.task).batch for span in shown)
    chart_spans: dict[tuple[str, str], list[ChartSpan]] = {}
    for span in sorted(shown, key=lambda span: (span.start_s, span.end_s, span.task)):
        chart_spans.setdefault(places.row(span), []).append(_block(span, start, places.is_link(span), layers, together))
    rows = sorted(chart_spans, key=lambda row: (_ORDER.index(row[0]), row[1]))
    names = [places.title(kind, owner, rows) for kind, owner in rows]
    tracks = [tuple(_tracks(chart_spans[row])) for row in rows]
    return Chart(tuple(ChartRow(*row) for row in zip(names, tracks, strict=True)), end - start, layers)


def layer_period(spans: Iterable[Span], hardware: Hardware) -> float | None:
    """Seconds from one layer to the next in the middle half of a pass, where its beginning and its end no longer
    matter: what a chart of one layer does not show when layers overlap. None for a pass of less than two layers."""
    places, begun = _Places(hardware), dict[int, float]()
    for span in spans:
        if span.layer >= 0 and places.computes(span):
            begun[span.layer] = min(span.start_s, begun.get(span.layer, span.start_s))
    if len(begun) < 2:
        return None
    order = sorted(begun)
    first, last = order[len(order) // 4], order[max(len(order) // 4 + 1, 3 * len(order) // 4)]
    return (begun[last] - begun[first]) / (last - first)


def _layers_text(layers: range) -> str:
    return str(layers.start) if len(layers) == 1 else f"{layers.start}-{layers.stop - 1}"


class _Places:
    """Which row a span belongs to; rows are (kind, lane owner)."""

    def __init__(self, hardware: Hardware) -> None:
        self.devices: dict[str, Device] = {device.name: device for device in hardware.devices}
        self.links: dict[str, Link] = {link.name: link for link in hardware.links}
        self.kinds = {memory.name: memory.kind for memory in hardware.memories}
        self.hosts = {device.memory for device in hardware.devices if device.kind == "cpu"}

    def is_link(self, span: Span) -> bool:
        """Whether the span moved something."""
        return lane_owner(span.resource) in self.links

    def computes(self, span: Span) -> bool:
        """Whether the span is an operation, not a transfer or the making ready of data."""
        return not self.is_link(span) and read_name(span.task).move is None

    def row(self, span: Span) -> tuple[str, str]:
        """(kind of row, device or link)."""
        owner, name = lane_owner(span.resource), read_name(span.task)
        if name.move == "decompress":
            return "decompress", owner
        if owner in self.devices:
            return ("CPU" if self.devices[owner].kind == "cpu" else "GPU"), owner
        return (self._link_row(self.links[owner], name.payload) if owner in self.links else "link"), owner

    def title(self, kind: str, owner: str, rows: Sequence[tuple[str, str]]) -> str:
        """Return the name of a row; with the name of the device or link where there are several of the kind."""
        if kind == "storage":
            return f"Storage ({self.links[owner].source_memory})"
        title = "Decompression" if kind == "decompress" else kind
        if kind == "GPU" and self.devices[owner].kind == "loopback":
            title = "Accelerator"
        if kind in ("weights", "cache", "activations"):
            title = f"{'PCIe' if self.links[owner].kind.startswith('pcie') else 'H2D'} ({kind})"
        several = [row_kind for row_kind, _ in rows].count(kind) > 1 or kind == "link"
        return f"{title} {owner}" if several else title

    def _link_row(self, link: Link, payload: Payload | None) -> str:
        if self.kinds[link.source_memory] == STORAGE:
            return "storage"
        if link.target_memory in self.hosts:
            return "D2H"
        if link.source_memory not in self.hosts:
            return "link"
        return "weights" if payload == "weights" else "cache" if payload in CACHED else "activations"


def _tracks(blocks: Sequence[ChartSpan]) -> list[tuple[ChartSpan, ...]]:
    """The fewest tracks in which no two blocks overlap; `blocks` are in the order of their starts."""
    tracks: list[list[ChartSpan]] = []
    for block in blocks:
        free = next((track for track in tracks if track[-1].end <= block.start + 1e-12), None)
        if free is None:
            tracks.append([block])
        else:
            free.append(block)
    return [tuple(track) for track in tracks]


def _block(span: Span, origin: float, moved: bool, layers: range, together: bool) -> ChartSpan:
    said = read_name(span.task)
    what, ready = _what(said), said.move in ("pin", "reshape")
    activation = moved and said.payload == "activation" and what not in (NEW_KV, TOKEN)
    group = "Activations" if activation else "Pinning, reshape" if ready else _GROUP_OF.get(what, "Activations")
    name = _NAMES.get(what, what)
    return ChartSpan(
        start=span.start_s - origin,
        end=span.end_s - origin,
        name=f"{'pin' if said.move == 'pin' else 'turn'} {name}" if ready else name,
        chunk=said.rows,
        batch=None if together or said.payload == "weights" else said.batch,
        layer=span.layer,
        group=group,
        inside=span.layer in layers,
    )


def _what(name: TaskName) -> str:
    """The key of `_NAMES` and of the colour groups."""
    cached = name.payload in CACHED and name.move != "reshape"
    return CACHE_OF[name.operation] if cached else name.operation
