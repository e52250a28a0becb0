"""Stages of a pass: what comes ahead together, and between what barriers stand.

A stage is the embedding, a block (or its attention and its FFN, where `schedule.stage` is half: FlexGen's layers,
GUPTA-13) or the output."""

from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby

from helmsman.lowering.operation import Formats, Half, Operation
from helmsman.lowering.ops import ONE_TOKEN, block_index, embedding_ops, output_ops
from helmsman.lowering.placement import Placed
from helmsman.schemas.model import Model


def stage_of(plan: Placed, op: str, layer: int | None) -> int:
    """Return the number of the stage of an operation, and of what is brought for it."""
    halves = 2 if plan.schedule.stage == "half" else 1
    if layer is not None:
        return 1 + halves * layer + (half_of(plan.model, layer, op) if halves == 2 else 0)
    return 0 if op in first_ops(plan.model) else 1 + halves * plan.model.layers


def half_of(model: Model, layer: int, op: str) -> Half:
    """Return the half of a block to which an operation, or what is brought for it, belongs."""
    facts = block_index(model, layer).get(op)
    return 0 if facts is None else facts.half


def beginnings(model: Model) -> tuple[str, ...]:
    """Return patterns of names for all that a model has before its blocks, operations and tensors alike."""
    names = [*dict.fromkeys(op.name for op in embedding_ops(model, ONE_TOKEN, Formats()))]
    more = [name for name in names if not any(name.startswith(other) for other in names if other != name)]
    return ("embedding*", "positions*", *(f"{name}*" for name in more if name != "embedding"))


@lru_cache(maxsize=64)
def last_ops(model: Model) -> tuple[str, ...]:
    """Return the operations after all blocks, in order."""
    return tuple(op.name for op in output_ops(model, ONE_TOKEN, Formats()))


@lru_cache(maxsize=64)
def first_ops(model: Model) -> frozenset[str]:
    """Return the operations before all blocks."""
    return frozenset({"positions", *(op.name for op in embedding_ops(model, ONE_TOKEN, Formats()))})


def stages(plan: Placed, ops: tuple[Operation, ...]) -> Iterator[tuple[Operation, ...]]:
    """Yield the operations of a block, or of an end of the model, by stage."""
    for _, members in groupby(ops, lambda op: stage_of(plan, op.name, op.layer)):
        yield tuple(members)
