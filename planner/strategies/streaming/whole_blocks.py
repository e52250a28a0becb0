"""Rules of blocks that are whole: kept on the accelerator, brought to it for every pass, or computed by the host."""

from collections.abc import Iterator
from itertools import accumulate, groupby
from typing import Literal

from helmsman.lowering.placement import Placement
from helmsman.planner.strategies.streaming.ends import End, blocks, end_homes, end_places
from helmsman.planner.strategies.streaming.place import Frame, schedule, vectors
from helmsman.schemas.plan import ComputeRule, KvRule, LayerRange, Residence, Select

Role = Literal["pinned", "streamed", "host"]
"""Pinned: lives on the accelerator; streamed: comes there; host: stays in host memory and is computed there."""

Order = tuple[Role, ...]
"""The role of every block."""


def runs(order: Order, role: Role) -> Iterator[LayerRange]:
    """Neighbouring blocks of one role."""
    groups = [(block_role, len(list(members))) for block_role, members in groupby(order)]
    stops = accumulate(count for _, count in groups)
    for (block_role, count), stop in zip(groups, stops, strict=True):
        if block_role == role:
            yield LayerRange(start=stop - count, stop=stop)


def place(frame: Frame, order: Order, end: End) -> Placement:
    """The rules of `order`. Prompts are worked on by the accelerator alone, so the host's blocks come there once
    (PARK-54); caches are where decode steps attend."""
    host, away = frame.roles.host, frame.accelerator
    return Placement(
        model=frame.model,
        hardware=frame.roles.hardware,
        workload=frame.workload,
        residence=(
            *end_homes(frame, end),
            *(_home(frame, run, away.memory) for run in runs(order, "pinned")),
            *vectors(frame),
            Residence(select=Select(), memory=host.memory, format=frame.weights),
        ),
        kv=(
            *(KvRule(select=Select(layers=run), memory=host.memory, format=frame.kv) for run in runs(order, "host")),
            KvRule(select=Select(), memory=away.memory, format=frame.kv),
        ),
        compute=(
            *end_places(frame, end),
            ComputeRule(select=Select(layers=blocks(frame)), device=away.name, phase="prefill"),
            *(ComputeRule(select=Select(layers=run), device=host.name) for run in runs(order, "host")),
            ComputeRule(select=Select(), device=away.name),
        ),
        activations=frame.roles.activations,
        schedule=schedule(frame),
    )


def _home(frame: Frame, run: LayerRange, memory: str) -> Residence:
    return Residence(select=Select(layers=run), memory=memory, format=frame.weights)
