"""Turn a split into rules: which units run where, which weights and caches are streamed, pinned or kept on storage."""

from dataclasses import dataclass, field, replace
from typing import Literal

from helmsman.lowering.caches import CACHE_OF
from helmsman.lowering.ops import LINEAR_OPS, op_extent
from helmsman.lowering.placement import Placement
from helmsman.planner.machine import Roles
from helmsman.planner.strategies.streaming.division import DivisionPiece, Form, joined, pieces
from helmsman.planner.strategies.streaming.store import WeightStore
from helmsman.planner.tensor_formats import Formats, exceptions
from helmsman.schemas.cache_use import PLAIN, CacheUse
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import Format, KvFormat, StoredFormat, is_plain, same_size
from helmsman.schemas.hardware import Device
from helmsman.schemas.model import Model
from helmsman.schemas.operation_table import OperationTable
from helmsman.schemas.plan import ComputeRule, KvRule, LayerRange, Part, Path, Residence, Schedule, Select
from helmsman.schemas.workload import Workload

Quarter = Literal["weights", "kv"]
"""What may be kept in 4-bit groups."""

ENDS = ("embedding*", "positions*", "final_norm*", "head*")


@dataclass(frozen=True, slots=True)
class Layout:
    """The decisions of a split: the accelerator's units, how they are kept, and where the ends of the model live.

    Of `units`, the accelerator computes start <= u < stop. `weights_q4`, `cache_q4`: streamed weights, caches in 4-bit
    groups; `stored`: operations whose weights come from `storage` (memories), `stripes` of each from each; `path`: how
    they come; `pinning` of what is streamed from host memory; `ends`: where embedding and output live and run;
    `threads` of the host, if they were chosen."""

    units: tuple[DivisionPiece, ...]
    start: int
    stop: int
    weights_q4: bool = False
    cache_q4: bool = False
    stored: tuple[str, ...] = ()
    storage: tuple[str, ...] = ()
    stripes: tuple[float, ...] = ()
    path: Literal["direct", "bounce"] = "direct"
    pinning: Path = "pinned"
    ends: Literal["host", "accelerator"] = "host"
    threads: int | None = None

    @property
    def streamed(self) -> tuple[DivisionPiece, ...]:
        """The units on the accelerator."""
        return self.units[self.start : self.stop]


@dataclass(frozen=True)
class Frame:
    """The question a layout answers. `cache`: what attention reads in decode steps; `fused`: attention at once;
    `store`: where else `optimal` may keep weights, `quarters`: what it may keep in 4-bit groups, `formats`: of tensors
    that are not in that of the other `weights`."""

    model: Model
    roles: Roles
    workload: Workload
    weights: StoredFormat = "f16"
    kv: KvFormat = "f16"
    prefetch: int = 1
    overlap: Literal["none", "next-layer"] = "next-layer"
    reshape: bool = False
    cache: CacheUse = PLAIN
    fused: bool = False
    store: WeightStore | None = None
    quarters: tuple[Quarter, ...] = ()
    formats: Formats = field(default_factory=dict, hash=False)

    @property
    def form(self) -> Form:
        """How attention is computed."""
        return "reordered" if self.cache.holds == "activations" else "fused" if self.fused else "divided"

    def units(self, chunks: dict[str, int]) -> tuple[DivisionPiece, ...]:
        """The units of a layer. Raises UsageError for a division that is not possible."""
        return pieces(self.model, chunks, self.form)

    @property
    def expanded(self) -> Format:
        """Return what weights in 4-bit groups become. Raises UsageError for weights that are quantised as they are."""
        return _expanded(self.weights, "format")

    @property
    def expanded_kv(self) -> Format:
        """Return what keys and values in 4-bit groups become. Raises UsageError for those that are quantised as they
        are."""
        return _expanded(self.kv, "kv_format")

    @property
    def accelerator(self) -> Device:
        """The device that gets the streamed units."""
        assert self.roles.accelerator is not None
        return self.roles.accelerator

    def with_tables(self, *tables: OperationTable) -> "Frame":
        """Return the same question on a machine with these tables, in place of its own of the same layer and batch."""
        hardware = self.roles.hardware
        others = [other for other in hardware.tables if not any(_alike(other, own) for own in tables)]
        changed = hardware.model_copy(update={"tables": (*tables, *others)})
        return replace(self, roles=replace(self.roles, hardware=changed))


def _expanded(fmt: StoredFormat, option: str) -> Format:
    if is_plain(fmt):
        return fmt
    raise UsageError(
        f"4-bit groups are expanded to f32, f16 or bf16, and `{option}` is {fmt}",
        field="compress",
        remedy=f"leave `compress` out: {fmt} is quantised already; or use `{option}` f16",
    )


def _alike(one: OperationTable, other: OperationTable) -> bool:
    """Whether two tables answer the same question."""
    return (one.shape, one.batch, one.cache) == (other.shape, other.batch, other.cache) and (
        same_size(one.format, other.format) and same_size(one.kv_format, other.kv_format)
    )


def place(frame: Frame, layout: Layout) -> Placement:
    """The rules of `layout`: prompts on the accelerator (PARK-54), decode steps divided."""
    host, accelerator = frame.roles.host, frame.accelerator
    streamed = joined(layout.streamed)
    placed = Placement(
        model=frame.model,
        hardware=frame.roles.hardware,
        workload=frame.workload,
        residence=(
            *_ends(frame, layout),
            *vectors(frame),
            *(_weights(frame, layout, piece) for piece in streamed if piece.op in LINEAR_OPS),
            Residence(select=Select(), memory=host.memory, format=frame.weights, path="pageable"),
        ),
        kv=(
            *(_cache(frame, layout, piece) for piece in streamed if piece.op in CACHE_OF),
            KvRule(select=Select(), memory=host.memory, format=frame.kv, path="pageable"),
        ),
        compute=(
            *_end_places(frame, layout),
            ComputeRule(select=_blocks(frame, "*"), device=accelerator.name, phase="prefill"),
            *_units(frame, streamed),
            ComputeRule(select=Select(), device=host.name),
        ),
        activations=frame.roles.activations,
        schedule=schedule(frame).model_copy(
            update={
                "attention": "divided" if frame.form == "divided" else "whole",
                "reshape": frame.reshape,
                "cache": frame.cache,
                "threads": layout.threads,
            }
        ),
    )
    own = exceptions(placed, frame.formats) if frame.formats else ()
    return replace(placed, residence=(*own, *placed.residence))


def schedule(frame: Frame) -> Schedule:
    """Weights come ahead while other layers are worked on, if anything overlaps, and once for all batches."""
    return Schedule(
        order="layer-major" if frame.workload.batches > 1 else "token-major",
        overlap=frame.overlap,
        prefetch=frame.prefetch if frame.overlap == "next-layer" else 0,
    )


def label(frame: Frame, layout: Layout) -> str:
    """One line for people: `cpu[norm1..v] cuda[scores..up] cpu[down]`, chunks as `scores:4-8`, then the extras."""
    host, accelerator = frame.roles.host.kind, frame.accelerator.kind
    before, after = layout.units[: layout.start], layout.units[layout.stop :]
    if not layout.streamed:
        before, after = layout.units, ()
    spans = ((host, before), (accelerator, layout.streamed), (host, after))
    parts = [f"{name}[{_span(units)}]" for name, units in spans if units]
    formats = {(True, True): "q4", (True, False): "q4 weights", (False, True): "q4 KV"}
    parts += [formats[layout.weights_q4, layout.cache_q4]] if layout.weights_q4 or layout.cache_q4 else []
    parts += [] if frame.cache.plain else [frame.cache.label]
    parts += [f"{'+'.join(layout.storage)}[{','.join(layout.stored)}]"] if layout.stored else []
    parts += [f"{frame.workload.batches}x{frame.workload.batch}"] if frame.workload.batches > 1 else []
    return " ".join(parts)


def _span(units: tuple[DivisionPiece, ...]) -> str:
    whole = joined(units)
    ends = [_name(whole[0]), _name(whole[-1])]
    return ends[0] if ends[0] == ends[1] else "..".join(ends)


def _name(piece: DivisionPiece) -> str:
    return piece.op if piece.whole else f"{piece.op}:{piece.start}-{piece.stop}"


def _blocks(frame: Frame, names: str, part: Part | None = None) -> Select:
    return Select(names=names, layers=LayerRange(start=0, stop=frame.model.layers), part=part)


def _part(frame: Frame, piece: DivisionPiece) -> Part | None:
    axis, _ = op_extent(frame.model, piece.op)
    return None if piece.whole else Part(axis=axis, start=piece.start, stop=piece.stop)


def _ends(frame: Frame, layout: Layout) -> list[Residence]:
    memory = frame.accelerator.memory if layout.ends == "accelerator" else frame.roles.host.memory
    return [Residence(select=Select(names=name), memory=memory, format=frame.weights) for name in ENDS]


def _end_places(frame: Frame, layout: Layout) -> list[ComputeRule]:
    device = frame.accelerator if layout.ends == "accelerator" else frame.roles.host
    return [ComputeRule(select=Select(names=name), device=device.name) for name in ("embedding", "final_norm", "head")]


def vectors(frame: Frame) -> list[Residence]:
    """Norms and biases are kept on both sides; they are never compressed (as FlexGen does)."""
    host, accelerator = frame.roles.host.memory, frame.accelerator.memory
    replicas = () if host == accelerator else (accelerator,)
    return [
        Residence(select=_blocks(frame, name), memory=host, format=frame.weights, replicas=replicas)
        for name in ("*norm*", "*.bias")
    ]


def _weights(frame: Frame, layout: Layout, piece: DivisionPiece) -> Residence:
    select = _blocks(frame, f"{piece.op}.weight", _part(frame, piece))
    if piece.op in layout.stored:
        first, *others = layout.storage
        return Residence(
            select=select,
            memory=first,
            format=frame.weights,
            path=layout.path,
            replicas=tuple(others),
            stripes=layout.stripes if others else (),
        )
    return packed(frame, layout.weights_q4, select, frame.roles.host.memory, layout.pinning)


def packed(frame: Frame, groups: bool, select: Select, memory: str, path: Path = "pinned") -> Residence:
    """Weights in 4-bit groups that are expanded before they are used, or as they are used."""
    if not groups:
        return Residence(select=select, memory=memory, format=frame.weights, path=path)
    return Residence(select=select, memory=memory, format="q4", path=path, expanded=frame.expanded)


def _cache(frame: Frame, layout: Layout, piece: DivisionPiece) -> KvRule:
    select = _blocks(frame, CACHE_OF[piece.op], _part(frame, piece))
    return packed_kv(frame, layout.cache_q4, select, frame.roles.host.memory, layout.pinning)


def packed_kv(frame: Frame, groups: bool, select: Select, memory: str, path: Path = "pinned") -> KvRule:
    """Keys and values in 4-bit groups that are expanded before they are used, or as they are used."""
    if not groups:
        return KvRule(select=select, memory=memory, format=frame.kv, path=path)
    return KvRule(select=select, memory=memory, format="q4", path=path, expanded=frame.expanded_kv)


def _units(frame: Frame, streamed: tuple[DivisionPiece, ...]) -> list[ComputeRule]:
    """Decode rules of the accelerator's units; the cache is written where the last of V is computed."""
    name = frame.accelerator.name
    rules = [ComputeRule(select=_blocks(frame, p.op, _part(frame, p)), device=name, phase="decode") for p in streamed]
    if any(piece.op == "v" and piece.stop == piece.extent for piece in streamed):
        rules.append(ComputeRule(select=_blocks(frame, "append"), device=name, phase="decode"))
    return rules
