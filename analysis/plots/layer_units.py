"""Where the weights and caches of every layer live and where they are used, as data for a picture."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from helmsman.lowering.ops import op_extent
from helmsman.lowering.placement import Placed, layouts_of
from helmsman.lowering.rules import Cached, Slice, first_alike, homes, kv_homes, places
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import block_tensors, embedding_tensors, linears, output_tensors
from helmsman.planner.strategies.streaming.division import PAPER_NAMES
from helmsman.scheduler.iteration import PHASES, Phase
from helmsman.schemas.plan import ComputeRule, KvRule, Residence

_CACHES: tuple[tuple[Cached, str, str], ...] = (("keys", "scores", "Keys"), ("values", "wv", "Values"))


@dataclass(frozen=True, slots=True)
class HomeUse:
    """Where something lives, a memory, and which device uses it."""

    home: str
    device: str


@dataclass(frozen=True, slots=True)
class UnitPart:
    """The part start <= x < stop of a whole (0 to 1), and its use."""

    start: float
    stop: float
    use: HomeUse


@dataclass(frozen=True, slots=True)
class Stretch:
    """Neighbouring blocks first <= layer < last that are alike: the parts of every row."""

    first: int
    last: int
    parts: tuple[tuple[UnitPart, ...], ...]


@dataclass(frozen=True, slots=True)
class Strip:
    """A pass of the phases: rows by name in order of use, stretches of blocks, and both ends of the model."""

    phases: tuple[Phase, ...]
    rows: tuple[str, ...]
    stretches: tuple[Stretch, ...]
    embedding: tuple[UnitPart, ...]
    head: tuple[UnitPart, ...]


def strips(plan: Placed) -> tuple[Strip, ...]:
    """Return one strip for each phase, or one for both where they are alike."""
    first, second = (_strip(plan, phase) for phase in PHASES)
    if (first.stretches, first.embedding, first.head) == (second.stretches, second.embedding, second.head):
        return (Strip((*first.phases, *second.phases), first.rows, first.stretches, first.embedding, first.head),)
    return second, first


def uses(strip: Strip) -> Iterator[HomeUse]:
    """Yield every use of a strip, from its beginning."""
    yield from (part.use for part in strip.embedding)
    for stretch in strip.stretches:
        yield from (part.use for row in stretch.parts for part in row)
    yield from (part.use for part in strip.head)


def _strip(plan: Placed, phase: Phase) -> Strip:
    return Strip(
        phases=(phase,),
        rows=tuple(_names(plan)),
        stretches=tuple(Stretch(*ends, tuple(_rows(plan, ends[0], phase))) for ends in _neighbours(plan)),
        embedding=_weights(plan, embedding_tensors(plan.model)[0], phase),
        head=_weights(plan, output_tensors(plan.model)[-1], phase),
    )


def _neighbours(plan: Placed) -> Iterator[tuple[int, int]]:
    """Neighbouring blocks that no rule tells apart, from the first on: each time the first, and the one behind them."""
    start = 0
    for _, alike in groupby(first_alike(plan, layouts_of(plan), plan.expert_slots)):
        stop = start + len(list(alike))
        yield start, stop
        start = stop


def _names(plan: Placed) -> Iterator[str]:
    ops = [op for op, *_ in linears(plan.model)]
    yield from (PAPER_NAMES[op] for op in ops[:3])
    yield from (name for *_, name in _CACHES)
    yield from (PAPER_NAMES[op] for op in ops[3:])


def _rows(plan: Placed, layer: int, phase: Phase) -> Iterator[tuple[UnitPart, ...]]:
    """Yield the parts of each row of a block: Q, K, V, keys, values, and what follows."""
    of = {tensor.op: tensor for tensor in block_tensors(plan.model, layer) if len(tensor.shape) > 1}
    ops = [op for op, *_ in linears(plan.model)]
    yield from (_weights(plan, of[op], phase) for op in ops[:3])
    for what, op, _ in _CACHES:
        yield _cache(plan, what, op, layer, phase)
    yield from (_weights(plan, of[op], phase) for op in ops[3:])


def _weights(plan: Placed, tensor: Tensor, phase: Phase) -> tuple[UnitPart, ...]:
    rows = tensor.shape[0]
    axis, extent = op_extent(plan.model, tensor.op)
    where = places(plan, tensor.op, tensor.layer, phase, extent, axis)
    if extent == 1:
        where = (Slice(where[0].rule, 0, rows),)
    return tuple(_parts(plan, homes(plan, tensor), where, rows))


def _cache(plan: Placed, what: Cached, op: str, layer: int, phase: Phase) -> tuple[UnitPart, ...]:
    heads = plan.model.dense.kv_heads
    where = places(plan, op, layer, phase, heads, "heads")
    return tuple(_parts(plan, kv_homes(plan, what, layer, heads), where, heads))


def _parts(
    plan: Placed,
    kept: Sequence[Slice[Residence]] | Sequence[Slice[KvRule]],
    where: Sequence[Slice[ComputeRule]],
    extent: int,
) -> Iterator[UnitPart]:
    """Yield rows or heads cut wherever home or device changes; neighbours of one use are one."""
    unit_parts: list[UnitPart] = []
    for home in kept:
        for place in where:
            start, stop = max(home.start, place.start), min(home.stop, place.stop)
            if start < stop:
                use = HomeUse(_home(plan, home.rule, place.rule.device), place.rule.device)
                unit_parts.append(UnitPart(start / extent, stop / extent, use))
    merged: list[UnitPart] = []
    for part in sorted(unit_parts, key=lambda part: part.start):
        if merged and merged[-1].use == part.use:
            part = UnitPart(merged.pop().start, part.stop, part.use)
        merged.append(part)
    yield from merged


def _home(plan: Placed, rule: Residence | KvRule, device: str) -> str:
    """Return the memory from which a device is served: its own, where a copy is."""
    own = plan.hardware.device(device).memory
    return own if isinstance(rule, Residence) and own in rule.replicas else rule.memory
