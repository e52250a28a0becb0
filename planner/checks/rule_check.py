"""Rules of a plan that cannot do what they say, each named by its place in the plan."""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from helmsman.lowering.caches import pieces_of
from helmsman.lowering.operation import DIVIDED
from helmsman.lowering.ops import BLOCK_OPS, LINEAR_OPS, block_index, end_index, op_extent
from helmsman.lowering.placement import shaped
from helmsman.lowering.rules import PREFIX, Slice, homes, matches, places, prefix_rule
from helmsman.lowering.tensors import tensors
from helmsman.planner.checks.format_check import Misfit, cache_misfit, matrix_misfit
from helmsman.scheduler.iteration import PHASES
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.formats import block_of
from helmsman.schemas.model import Model
from helmsman.schemas.plan import ComputeRule, KvRule, Plan, Residence, Select
from helmsman.schemas.repeated_names import first_repeated
from helmsman.schemas.storage import STORAGE

RuleT = TypeVar("RuleT", Residence, ComputeRule)

_WITHOUT_LAYER = {
    "residence": ("embedding.weight", "positions.weight", "final_norm.weight", "final_norm.bias", "head.weight"),
    "kv": (),
    "compute": ("embedding", "positions", "final_norm", "head"),
}
_IN_BLOCKS = {
    "residence": (
        *(f"{op}.{part}" for op in (*LINEAR_OPS, "norm1", "norm2") for part in ("weight", "bias")),
        "q_norm.weight",
        "k_norm.weight",
    ),
    "kv": ("keys", "values", PREFIX),
    "compute": (*BLOCK_OPS, *DIVIDED),
}
"""What rules can name in some model: strategies write the same rules whether or not a model has biases."""


def check_rules(plan: Plan) -> None:
    """Raise BadInputError for a rule that names nothing, a path its home does not have, a replica that is no other
    copy, a part of what is not divided, a format that a matrix or a cache does not divide into, or an overlap without
    room for what comes ahead."""
    for name in ("residence", "kv", "compute"):
        for index, rule in enumerate(getattr(plan, name)):
            _check_named(plan.model, name, index, rule.select)
    for field, rule in _stored(plan):
        _check_path(plan, field, rule)
    for index, weights in enumerate(plan.residence):
        _check_replicas(f"residence.{index}.replicas", weights)
    _check_whole(plan)
    _check_blocks(plan)
    _check_stores(plan)
    if plan.schedule.overlap == "next-layer" and plan.schedule.prefetch == 0:
        message, remedy = "overlap next-layer needs room for a layer ahead", "write 1 or more, or overlap none"
        raise BadInputError(message, field="schedule.prefetch", value=0, remedy=remedy)


def _check_named(model: Model, where: str, index: int, select: Select) -> None:
    in_blocks = select.layers is not None
    known = (*_IN_BLOCKS[where], *(() if in_blocks else _WITHOUT_LAYER[where]))
    names = (*known, *_names_in(model, where, whole=not in_blocks))
    if not any(matches(Select(names=select.names), name, None) for name in names):
        raise BadInputError(
            "names nothing that such a rule can be about" + (" in a block" if in_blocks else ""),
            field=f"{where}.{index}.select.names",
            value=select.names,
            remedy=f"name one of {', '.join(known)}",
        )


def _names_in(model: Model, where: str, *, whole: bool) -> Iterator[str]:
    """Yield what rules can name in a model, or in its blocks alone, beside what every dense one has."""
    if where == "residence":
        yield from dict.fromkeys(tensor.name for tensor in tensors(model) if whole or tensor.layer is not None)
    elif where == "compute":
        if whole:
            yield from end_index(model)
        yield from dict.fromkeys(
            op for letter in model.pattern for op in block_index(model, model.pattern.index(letter))
        )


def _stored(plan: Plan) -> Iterator[tuple[str, Residence | KvRule]]:
    yield from ((f"residence.{index}", rule) for index, rule in enumerate(plan.residence))
    yield from ((f"kv.{index}", rule) for index, rule in enumerate(plan.kv))


def _check_path(plan: Plan, field: str, rule: Residence | KvRule) -> None:
    """Storage alone is read straight by a device, or through host memory; what is pinned on its way is copied by a
    device of its memory."""
    kind = next((memory.kind for memory in plan.hardware.memories if memory.name == rule.memory), STORAGE)
    if rule.path in ("direct", "bounce") and kind != STORAGE:
        raise BadInputError(
            f"leads from storage to a device, and {rule.memory} is of kind {kind}",
            field=f"{field}.path",
            value=rule.path,
            remedy="write pinned, pageable or pin-on-transfer",
        )
    if rule.path == "pin-on-transfer" and all(device.memory != rule.memory for device in plan.hardware.devices):
        raise BadInputError(
            f"no device works in {rule.memory}: nothing copies to page-locked memory there",
            field=f"{field}.path",
            value=rule.path,
            remedy="write pinned or pageable",
        )


def _check_replicas(field: str, rule: Residence) -> None:
    twice = first_repeated((rule.memory, *rule.replicas))
    if twice is not None:
        remedy = "remove it, or name another memory"
        raise BadInputError("two copies in one memory", field=field, value=twice, remedy=remedy)


def _check_whole(plan: Plan) -> None:
    """Raise BadInputError where a rule divides the vector of a norm, which its device reads whole, or the head."""
    placed = shaped(plan)
    for tensor in tensors(plan.model):
        whole = len(tensor.shape) == 1 and op_extent(plan.model, tensor.op, tensor.layer)[1] == 1
        pieces = homes(placed, tensor) if whole else ()
        if len(pieces) > 1:
            place = tensor.name if tensor.layer is None else f"{tensor.name} of block {tensor.layer}"
            raise _divided(f"residence.{_index(plan.residence, pieces)}", place)
    for phase in PHASES:
        slices = places(plan, "head", None, phase, plan.model.vocab, "rows")
        if len(slices) > 1:
            raise _divided(f"compute.{_index(plan.compute, slices)}", "head")


def _index(rules: Sequence[RuleT], pieces: Sequence[Slice[RuleT]]) -> int:
    """The place of the first of the rules of `pieces` that is about a part."""
    return min(rules.index(piece.rule) for piece in pieces if piece.rule.select.part is not None)


def _divided(field: str, what: str) -> BadInputError:
    remedy = "leave `part` out, or name matrices or attention only"
    return BadInputError(f"{what} is not divided", field=f"{field}.select.part", remedy=remedy)


def _check_stores(plan: Plan) -> None:
    """Known tokens are stored whole, as the caches to which they come keep them."""
    for index, stored in enumerate(plan.kv):
        if stored.select.names == PREFIX and (stored.select.part is not None or stored.path == "pin-on-transfer"):
            field, remedy = f"kv.{index}", "leave `part` out, and write pinned, pageable, bounce or direct"
            raise BadInputError("known tokens are stored whole, and pinned at most once", field=field, remedy=remedy)
    for layer in range(plan.model.layers):
        rule = prefix_rule(plan, layer)
        if rule is not None:
            _check_store(plan, layer, rule)


def _check_store(plan: Plan, layer: int, rule: KvRule) -> None:
    for piece in pieces_of(plan, layer):
        if piece.rule.format != rule.format:
            raise BadInputError(
                f"known tokens are kept as the caches to which they come, in {piece.rule.format}",
                field=f"kv.{plan.kv.index(rule)}.format",
                value=rule.format,
                remedy=f"write {piece.rule.format}",
            )


def _check_blocks(plan: Plan) -> None:
    """Columns of matrices, and rows of heads, are whole blocks of the formats that rules give them."""
    if any(block_of(rule.format) > 1 for rule in plan.residence):
        placed = shaped(plan)
        for tensor in tensors(plan.model):
            for piece in homes(placed, tensor):
                misfit = matrix_misfit(tensor, piece.rule.format)
                if misfit is not None:
                    raise _unfit(f"residence.{plan.residence.index(piece.rule)}", piece.rule, misfit)
    for index, rule in enumerate(plan.kv):
        misfit = cache_misfit(plan.model, rule.used)
        if misfit is not None:
            raise _unfit(f"kv.{index}", rule, misfit)


def _unfit(field: str, rule: Residence | KvRule, misfit: Misfit) -> BadInputError:
    remedy = f"write {misfit.remedy}"
    return BadInputError(misfit.message, field=f"{field}.format", value=rule.format, remedy=remedy)
