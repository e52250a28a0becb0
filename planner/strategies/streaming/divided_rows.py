"""Rules of blocks whose linear layers two devices share by rows, while the accelerator's rows come from host memory."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

from helmsman.lowering.ops import LINEAR_OPS, op_extent
from helmsman.lowering.placement import Placement
from helmsman.planner.strategies.streaming.ends import End, blocks, end_homes, end_places
from helmsman.planner.strategies.streaming.place import Frame, schedule, vectors
from helmsman.scheduler.iteration import PHASES, Phase
from helmsman.schemas.model import Model
from helmsman.schemas.plan import ComputeRule, KvRule, LayerRange, Part, Residence, Select

Rows = Mapping[Phase, Mapping[str, int]]
"""By phase and operation, how many of its first rows are brought to the accelerator; the host computes the others."""


@dataclass(frozen=True, slots=True)
class Division:
    """Who has what. `brought`: rows that come to the accelerator; `kept`: by operation, in how many of the first blocks
    its matrix lives there whole; `cache` and `end`: where caches and the output are."""

    brought: Rows
    kept: Mapping[str, int]
    cache: End = "accelerator"
    end: End = "accelerator"


def divided_operations(model: Model) -> tuple[str, ...]:
    """The linear layers of a block."""
    return tuple(op for op in LINEAR_OPS if op_extent(model, op)[1] > 1)


def place(frame: Frame, division: Division) -> Placement:
    """The rules of a division: norms and attention on the accelerator; where caches are in host memory, decode steps
    append and attend there."""
    host, away = frame.roles.host, frame.accelerator
    memory = away.memory if division.cache == "accelerator" else host.memory
    ops = divided_operations(frame.model)
    return Placement(
        model=frame.model,
        hardware=frame.roles.hardware,
        workload=frame.workload,
        residence=(
            *end_homes(frame, division.end),
            *vectors(frame),
            *chain.from_iterable(_homes(frame, division, op) for op in ops),
            Residence(select=Select(), memory=host.memory, format=frame.weights, path="pageable"),
        ),
        kv=(KvRule(select=Select(), memory=memory, format=frame.kv),),
        compute=(
            *end_places(frame, division.end),
            *chain.from_iterable(_places(frame, division, op) for op in ops),
            *_attention(frame, division),
            ComputeRule(select=Select(), device=away.name),
        ),
        activations=frame.roles.activations,
        schedule=schedule(frame),
    )


def _homes(frame: Frame, division: Division, op: str) -> Iterator[Residence]:
    """Kept matrices, and the rows that are brought, page-locked in host memory."""
    name, kept = f"{op}.weight", division.kept.get(op, 0)
    if kept:
        select = Select(names=name, layers=LayerRange(start=0, stop=kept))
        yield Residence(select=select, memory=frame.accelerator.memory, format=frame.weights)
    if rows := max(division.brought[phase][op] for phase in PHASES):
        yield Residence(select=_part(frame, name, op, rows), memory=frame.roles.host.memory, format=frame.weights)


def _places(frame: Frame, division: Division, op: str) -> Iterator[ComputeRule]:
    host, away, kept = frame.roles.host.name, frame.accelerator.name, division.kept.get(op, 0)
    if kept:
        yield ComputeRule(select=Select(names=op, layers=LayerRange(start=0, stop=kept)), device=away)
    for phase in PHASES:
        rows = division.brought[phase][op]
        if rows:
            yield ComputeRule(select=_part(frame, op, op, rows), device=away, phase=phase)
        if rows < op_extent(frame.model, op)[1]:
            yield ComputeRule(select=Select(names=op, layers=blocks(frame)), device=host, phase=phase)


def _part(frame: Frame, name: str, op: str, rows: int) -> Select:
    part = None if rows == op_extent(frame.model, op)[1] else Part(axis="rows", start=0, stop=rows)
    return Select(names=name, layers=blocks(frame), part=part)


def _attention(frame: Frame, division: Division) -> Iterator[ComputeRule]:
    for op in ("append", "attention") if division.cache == "host" else ():
        yield ComputeRule(select=Select(names=op, layers=blocks(frame)), device=frame.roles.host.name, phase="decode")
