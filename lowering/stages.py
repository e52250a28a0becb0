"""Stages of a pass: what comes ahead together, and between what barriers stand.

A stage is the embedding, a block (or its attention and its FFN, where `schedule.stage` is half: FlexGen's layers,
GUPTA-13) or the output."""

from collections.abc import Iterator
from itertools import groupby

from helmsman.lowering.ops import FFN_OPS, Operation
from helmsman.lowering.placement import Placed

FIRST_OPS = frozenset({"embedding", "positions"})
"""The operations before all blocks."""


def stage_of(plan: Placed, op: str, layer: int | None) -> int:
    """Return the number of the stage of an operation, and of what is brought for it."""
    halves = 2 if plan.schedule.stage == "half" else 1
    if layer is not None:
        return 1 + halves * layer + (halves - 1) * (op in FFN_OPS)
    return 0 if op in FIRST_OPS else 1 + halves * plan.model.layers


def stages(plan: Placed, ops: tuple[Operation, ...]) -> Iterator[tuple[Operation, ...]]:
    """Yield the operations of a block, or of an end of the model, by stage."""
    for _, members in groupby(ops, lambda op: stage_of(plan, op.name, op.layer)):
        yield tuple(members)
