"""Turn an assignment of ways to blocks into the rules of a plan."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from helmsman.lowering.operation import PANEL
from helmsman.lowering.ops import op_extent
from helmsman.lowering.placement import Placement
from helmsman.planner.strategies.optimal.configurations.block_ways import ATTENTION, BlockWay, Division, Part, decided
from helmsman.planner.strategies.streaming.ends import End
from helmsman.planner.strategies.streaming.place import ENDS, Frame, packed, packed_kv
from helmsman.planner.tensor_formats import exceptions
from helmsman.scheduler.iteration import PHASES, Phase
from helmsman.schemas.hardware import Device
from helmsman.schemas.model import Model
from helmsman.schemas.plan import ComputeRule, KvRule, LayerRange, Residence, Schedule, Select
from helmsman.schemas.plan import Part as Rows

_OUTPUT = ("final_norm", "head")

Ranges = LayerRange | tuple[LayerRange, ...]
"""Blocks, as rules name them."""


Side = End | int
"""The host or an accelerator, by number where it is not the first."""

Ends = tuple[Side, Side]
"""Where the embedding and the output live and run."""

Shares = Mapping[Division, Mapping[str, float]]
"""By division and operation, which share of its rows the accelerator computes where the host has the others."""

PREFETCH = 1
"""The number of blocks ahead for which something may come."""

BUFFERS = 1 + PREFETCH
"""The number of blocks of an accelerator for which there is room for what comes."""


@dataclass(frozen=True)
class Assignment:
    """A way for every block, and where the ends of the model live and run. `shares`: by accelerator."""

    blocks: tuple[BlockWay, ...]
    embedding: Side
    output: Side
    shares: Mapping[int, Shares]


def place(frame: Frame, chosen: Assignment) -> Placement:
    """The rules of an assignment; the host has what they do not name."""
    host, rest = frame.roles.host, Select()
    ways = _where(chosen.blocks)
    streams = streaming(frame, chosen.blocks)
    placed = Placement(
        model=frame.model,
        hardware=frame.roles.hardware,
        workload=frame.workload,
        residence=(
            *_end_homes(frame, chosen),
            *_vectors(frame, ways),
            *(rule for way, where in ways.items() for rule in _weights(frame, chosen, way, where)),
            Residence(select=rest, memory=host.memory, format=frame.weights),
        ),
        kv=(
            *_caches(frame, ways),
            KvRule(select=rest, memory=host.memory, format=frame.kv),
        ),
        compute=(
            *_end_places(frame, chosen),
            *(rule for way, where in ways.items() for rule in _places(frame, chosen, way, where)),
            ComputeRule(select=rest, device=host.name),
        ),
        activations=frame.roles.activations,
        schedule=Schedule(
            order="layer-major" if frame.workload.batches > 1 else "token-major",
            overlap="next-layer" if streams else "none",
            prefetch=PREFETCH if streams else 0,
        ),
    )
    own = exceptions(placed, frame.formats) if frame.formats else ()
    return replace(placed, residence=(*own, *placed.residence))


def streaming(frame: Frame, blocks: Iterable[BlockWay]) -> bool:
    """Whether anything comes to an accelerator for such blocks."""
    host = frame.roles.host.memory
    return any(way.streams and _away(frame, way).memory != host for way in blocks)


def _caches(frame: Frame, ways: Mapping[BlockWay, Ranges]) -> Iterator[KvRule]:
    """Keys and values that are not in host memory as they are used."""
    for way, where in ways.items():
        select = Select(layers=where)
        if way.cache == "accelerator":
            yield KvRule(select=select, memory=_away(frame, way).memory, format=frame.kv)
        elif "cache" in way.q4:
            yield packed_kv(frame, True, select, frame.roles.host.memory)


def rows(frame: Frame, op: str, share: float) -> int:
    """How many of an operation's first rows the accelerator has, if that is a `share` of them; whole panels."""
    extent = op_extent(frame.model, op)[1]
    return max(PANEL, min(extent - PANEL, PANEL * round(share * extent / PANEL)))


def _counts(frame: Frame, chosen: Assignment, way: BlockWay, phase: Phase = "decode") -> dict[str, int]:
    """By operation, how many of its first rows the accelerator has in a way of an assignment; attention is whole."""
    counts = {}
    for number, (op, part) in enumerate(zip(decided(frame.model), way.parts_in(phase), strict=True)):
        extent = op_extent(frame.model, op)[1] if part == "accelerator" else 0
        both = part == "both"
        counts[op] = rows(frame, op, chosen.shares[way.on][way.division(number, phase)][op]) if both else extent
    return counts


def _where(blocks: Sequence[BlockWay]) -> dict[BlockWay, Ranges]:
    """The blocks of every way."""
    layer_ranges: dict[BlockWay, list[LayerRange]] = {}
    start = 0
    for way, members in groupby(blocks):
        stop = start + len(tuple(members))
        layer_ranges.setdefault(way, []).append(LayerRange(start=start, stop=stop))
        start = stop
    return {way: ranges[0] if len(ranges) == 1 else tuple(ranges) for way, ranges in layer_ranges.items()}


def _end_homes(frame: Frame, chosen: Assignment) -> Iterator[Residence]:
    for name in ENDS:
        side = device_of(frame, chosen.output if name.startswith(_OUTPUT) else chosen.embedding)
        yield Residence(select=Select(names=name), memory=side.memory, format=frame.weights)


def _end_places(frame: Frame, chosen: Assignment) -> Iterator[ComputeRule]:
    yield ComputeRule(select=Select(names="embedding"), device=device_of(frame, chosen.embedding).name)
    for name in _OUTPUT:
        yield ComputeRule(select=Select(names=name), device=device_of(frame, chosen.output).name)


def device_of(frame: Frame, side: Side) -> Device:
    """Which device a side is."""
    if side == "host":
        return frame.roles.host
    return frame.roles.accelerators[0 if side == "accelerator" else side]


def _away(frame: Frame, way: BlockWay) -> Device:
    """The accelerator of a way."""
    return device_of(frame, way.on)


def _vectors(frame: Frame, ways: Mapping[BlockWay, Ranges]) -> Iterator[Residence]:
    """Norms and biases live where their block is computed: on both sides, where both have a part of it."""
    host = frame.roles.host.memory
    for way, where in ways.items():
        if way.needs_vectors_away:
            away = _away(frame, way).memory
            memory, copies = (away, ()) if way.whole or host == away else (host, (away,))
            for name in ("*norm*", "*.bias"):
                select = Select(names=name, layers=where)
                yield Residence(select=select, memory=memory, format=frame.weights, replicas=copies)


def _weights(frame: Frame, chosen: Assignment, way: BlockWay, where: Ranges) -> Iterator[Residence]:
    whole = set(way.parts) == {"accelerator"} and "resident" not in way.q4
    if whole and all(way.resident[k] for k in range(len(way.parts)) if k != ATTENTION):
        yield Residence(select=Select(layers=where), memory=_away(frame, way).memory, format=frame.weights)
        return
    counts = _counts(frame, chosen, way)
    for k, (op, here) in enumerate(zip(decided(frame.model), way.resident, strict=True)):
        if k != ATTENTION and (here or k in way.stored or way.packed(k)):
            select = _part(frame, f"{op}.weight", op, where, counts[op])
            memory = (_away(frame, way) if here else frame.roles.host).memory
            rule = packed(frame, way.packed(k), select, memory)
            yield _from_storage(frame, rule) if k in way.stored else rule


def _from_storage(frame: Frame, rule: Residence) -> Residence:
    """Return the rule with a copy in every memory of the storage."""
    assert frame.store is not None
    first, *others = frame.store.memories
    kept = {"memory": first, "replicas": tuple(others), "stripes": frame.store.stripes, "path": frame.store.path}
    return rule.model_copy(update=kept)


def _part(frame: Frame, name: str, op: str, where: Ranges, count: int | None) -> Select:
    """The first `count` rows of an operation, or all of it."""
    axis, extent = op_extent(frame.model, op)
    part = None if count in (None, extent) else Rows(axis=axis, start=0, stop=count)
    return Select(names=name, layers=where, part=part)


def _places(frame: Frame, chosen: Assignment, way: BlockWay, where: Ranges) -> Iterator[ComputeRule]:
    if way.alone:
        return
    away = _away(frame, way).name
    phases: tuple[Phase | None, ...] = (None,) if way.prompt == "alike" else PHASES
    for phase in phases:
        if set(way.parts_in(phase or "decode")) == {"accelerator"}:
            yield ComputeRule(select=Select(layers=where), device=away, phase=phase)
            continue
        counts = _counts(frame, chosen, way, phase or "decode")
        for op, part in parts_of(frame.model, way, phase or "decode").items():
            if part != "host":
                select = _part(frame, op, op, where, counts.get(op))
                yield ComputeRule(select=select, device=away, phase=phase)


def companions(model: Model) -> dict[str, str]:
    """The operations that are not decided about, by name, and with which they go: norms with what reads them first,
    writing keys and values with attention."""
    return {"norm1": "q", "append": "attention", "norm2": "gate" if model.dense.gated else "up"}


def parts_of(model: Model, way: BlockWay, phase: Phase) -> dict[str, Part]:
    """Who computes every operation of a block in a phase; norms are the accelerator's where it has any of what reads
    them."""
    parts = dict(zip(decided(model), way.parts_in(phase), strict=True))
    for op, leader in companions(model).items():
        parts[op] = "host" if parts[leader] == "host" else "accelerator"
    return parts
