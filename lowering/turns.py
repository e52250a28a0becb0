"""The operations of a pass in the order in which batches do them."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from helmsman.lowering.bodies.experts_apart import ROUTER, apart, expert_products
from helmsman.lowering.layer_cache import owner
from helmsman.lowering.operation import DIVIDED, Formats, Operation
from helmsman.lowering.ops import embedding_ops, output_ops
from helmsman.lowering.parts import DividedOperation, divided_operations
from helmsman.lowering.placement import KnownPlan, Placed
from helmsman.lowering.rules import device_of, kv_rule, places, slots_of
from helmsman.lowering.stages import stage_of, stages
from helmsman.lowering.variants import attending, varied_ops
from helmsman.scheduler.iteration import Iteration, Phase


class TurnPart(NamedTuple):
    """Operations that follow each other in block `layer` (None: at an end of the model), in stage `unit` of a pass.
    Equal blocks share `works`."""

    works: tuple[DividedOperation, ...]
    layer: int | None
    unit: int


class _Stage(NamedTuple):
    """The operations of a stage, the same in all blocks that are alike; those `before` the rest end the turn before."""

    before: tuple[DividedOperation, ...]
    rest: tuple[DividedOperation, ...]


def divides_attention(plan: Placed, layer: int, iteration: Iteration) -> bool:
    """Whether scores, softmax and weighted values have places of their own."""
    attention = plan.model.attention(layer)
    if attention is None:
        return False
    if plan.schedule.attention == "divided":
        return True
    heads = attention.kv_heads
    pieces_of_ops = [
        places(plan, op, layer, iteration.phase, heads if op != "softmax" else 1, "heads") for op in DIVIDED
    ]
    return (
        any(len(pieces) > 1 for pieces in pieces_of_ops) or len({pieces[0].rule.device for pieces in pieces_of_ops}) > 1
    )


def divides_experts(plan: Placed, layer: int, phase: Phase, ops: Sequence[Operation]) -> bool:
    """Whether experts of a block are computed elsewhere than their router, their matrices divided alike."""
    products = expert_products(ops)
    divisions = {
        tuple([(piece.rule.device, piece.start, piece.stop) for piece in pieces])
        for pieces in (places(plan, op.name, layer, phase, op.extent, op.axis) for op in products)
    }
    if len(divisions) != 1 or _all_in_slots(plan, layer, products[0]):
        return False
    devices = {device for device, _, _ in divisions.pop()}
    return devices != {device_of(plan, ROUTER, layer, phase)}


def _all_in_slots(plan: Placed, layer: int, product: Operation) -> bool:
    """Whether slots hold all experts of a block, so that no other device computes any."""
    rule = slots_of(plan.expert_slots, layer)
    return rule is not None and rule.slots >= product.extent


def turns(plan: KnownPlan, iteration: Iteration) -> Iterator[tuple[TurnPart, ...]]:
    """Yield what each batch does in its turn: from where a layer's work goes to another device up to there in the next.

    So a host that computes both ends of a layer goes on with the same batch, which the search relies on: finishing
    a layer for every batch first would be up to a third slower. With barriers a turn is a stage."""
    waiting: tuple[TurnPart, ...] = ()
    for stage, layer in _passed(plan, iteration):
        unit = stage_of(plan, stage.rest[0].op.name, layer)
        turn = (*waiting, TurnPart(stage.before, layer, unit)) if stage.before else waiting
        if turn:
            yield turn
        waiting = (TurnPart(stage.rest, layer, unit),)
    yield waiting


def distinct_operations(plan: KnownPlan, iteration: Iteration) -> Iterator[tuple[int | None, DividedOperation]]:
    """Yield the operations of a pass, each with the first of the blocks that share it, None of the model's ends."""
    seen = attending(plan.schedule.cache, iteration)
    for first in (None, *dict.fromkeys(plan.first_alike)):
        ops = _ends(plan, iteration) if first is None else (_block(plan, first, iteration),)
        yield from ((first, work) for some in ops for work in divided_operations(plan, seen, some))


def _passed(plan: KnownPlan, iteration: Iteration) -> Iterator[tuple[_Stage, int | None]]:
    """Yield the stages of a pass, each with its block; blocks that no rule tells apart share theirs."""
    begin, end = _ends(plan, iteration)
    for stage in _stages(plan, iteration, begin):
        yield stage, None
    alike: dict[int, tuple[_Stage, ...]] = {}
    for layer, first in enumerate(plan.first_alike):
        if first not in alike:
            alike[first] = tuple(_stages(plan, iteration, _block(plan, first, iteration)))
        yield from ((stage, layer) for stage in alike[first])
    for stage in _stages(plan, iteration, end):
        yield stage, None


def _ends(plan: KnownPlan, iteration: Iteration) -> tuple[tuple[Operation, ...], tuple[Operation, ...]]:
    """Return the operations before all blocks and after them."""
    plain = Formats(activations=plan.activations)
    return embedding_ops(plan.model, iteration, plain), output_ops(plan.model, iteration, plain)


def _block(plan: KnownPlan, layer: int, iteration: Iteration) -> tuple[Operation, ...]:
    formats = Formats(kv=kv_rule(plan, owner(plan.model, layer)).used, activations=plan.activations)
    divided = divides_attention(plan, layer, iteration)
    ops = varied_ops(plan.model, layer, iteration, formats, divided, plan.schedule.cache)
    if not divides_experts(plan, layer, iteration.phase, ops):
        return ops
    return apart(ops, iteration.batch * iteration.tokens * plan.model.hidden)


def _stages(plan: KnownPlan, iteration: Iteration, ops: tuple[Operation, ...]) -> Iterator[_Stage]:
    seen = attending(plan.schedule.cache, iteration)
    for members in stages(plan, ops):
        works = divided_operations(plan, seen, members)
        cut = 0 if plan.schedule.barrier else _departure(works)
        yield _Stage(works[:cut], works[cut:])


def _departure(stage: tuple[DividedOperation, ...]) -> int:
    """Return the first operation of a stage that is not wholly on the device where the stage ends; 0 if that is the
    first."""
    home = stage[-1].parts[-1].device
    away = (i for i, work in enumerate(stage) if any(part.device != home for part in work.parts))
    return next(away, 0)
