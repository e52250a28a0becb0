"""The operations of a pass in the order in which batches do them."""

from collections.abc import Iterator

from helmsman.lowering.ops import DIVIDED, Formats, Operation, embedding_ops, output_ops
from helmsman.lowering.placement import Placed
from helmsman.lowering.rules import kv_rule, places
from helmsman.lowering.stages import stages
from helmsman.lowering.variants import varied_ops
from helmsman.scheduler.iteration import Iteration


def divides_attention(plan: Placed, layer: int, iteration: Iteration) -> bool:
    """Whether scores, softmax and weighted values have places of their own."""
    if plan.schedule.attention == "divided":
        return True
    heads = plan.model.kv_heads
    found = [places(plan, op, layer, iteration.phase, heads if op != "softmax" else 1, "heads") for op in DIVIDED]
    return any(len(pieces) > 1 for pieces in found) or len({pieces[0].rule.device for pieces in found}) > 1


def _units(plan: Placed, iteration: Iteration) -> Iterator[tuple[Operation, ...]]:
    model, plain = plan.model, Formats(activations=plan.activations)
    yield embedding_ops(model, iteration, plain)
    for layer in range(model.layers):
        rule = kv_rule(plan, layer)
        used = rule.expanded if rule.format == "q4" else rule.format
        formats = Formats(kv=used, activations=plan.activations)
        divided = divides_attention(plan, layer, iteration)
        yield varied_ops(model, layer, iteration, formats, divided, plan.schedule.cache)
    yield output_ops(model, iteration, plain)


def turns(plan: Placed, iteration: Iteration) -> Iterator[tuple[Operation, ...]]:
    """What each batch does in its turn: from where a layer's work goes to another device up to there in the next.

    So a host that computes both ends of a layer goes on with the same batch, which the search relies on: finishing
    a layer for every batch first would be up to a third slower. With barriers a turn is a stage."""
    waiting: tuple[Operation, ...] = ()
    for unit in (stage for ops in _units(plan, iteration) for stage in stages(plan, ops)):
        cut = 0 if plan.schedule.barrier else _departure(plan, iteration, unit)
        yield from (turn for turn in (waiting + unit[:cut],) if turn)
        waiting = unit[cut:]
    yield waiting


def _departure(plan: Placed, iteration: Iteration, unit: tuple[Operation, ...]) -> int:
    """The first operation of a unit that is not wholly on the device where the unit ends; 0 if that is the first."""
    places_of = [places(plan, op.name, op.layer, iteration.phase, op.extent, op.axis) for op in unit]
    home = places_of[-1][-1].rule.device
    away = (i for i, pieces in enumerate(places_of) if any(piece.rule.device != home for piece in pieces))
    return next(away, 0)
