"""The invariants of a plan, checked when one is read, whoever wrote it."""

from collections.abc import Iterator

from helmsman.lowering.caches import pieces_of
from helmsman.lowering.paging import passes_of, windows
from helmsman.lowering.pass_shape import pass_of
from helmsman.lowering.placement import Placed, shaped
from helmsman.lowering.prefix import stores
from helmsman.lowering.rules import homes
from helmsman.lowering.tensor import Tensor
from helmsman.lowering.tensors import tensors
from helmsman.lowering.variants import check_cache_use
from helmsman.planner.checks.routing_check import check_routing
from helmsman.planner.checks.rule_check import check_rules
from helmsman.planner.checks.slots_check import check_slots
from helmsman.planner.checks.window_check import check_windows
from helmsman.planner.memory.devices_used import devices_used
from helmsman.planner.memory.names import memory_place
from helmsman.planner.memory.usage import memory_use, shortages, with_drafter
from helmsman.planner.prediction.predict import mean_step
from helmsman.schemas.errors import BadInputError, InfeasibleError, UsageError
from helmsman.schemas.plan import Drafting, Plan, Select
from helmsman.schemas.read import is_digest
from helmsman.schemas.units import format_bytes


def accept(plan: Plan) -> Plan:
    """The plan itself, once every invariant holds.

    Raises BadInputError naming the rule, the place and the numbers; InfeasibleError when a memory is too small."""
    _check_digests(plan)
    _check_cache_use(plan)
    _check_selectors(plan)
    _check_homes(plan)
    check_rules(plan)
    check_windows(plan)
    check_slots(plan)
    if plan.workload.routing is not None:
        check_routing(plan.workload.routing, plan.model)
    for iteration in (passes_of(plan).prompt[-1], mean_step(plan.workload)):
        pass_of(shaped(plan), iteration)
    _check_exclusive(plan)
    _check_context(plan)
    check_memory(plan, plan.drafting)
    return plan


def _check_digests(plan: Plan) -> None:
    for name in ("model", "hardware", "workload"):
        stated = getattr(plan, f"{name}_sha256")
        if not is_digest(stated, getattr(plan, name)):
            raise BadInputError(
                f"does not match the embedded {name}",
                field=f"{name}_sha256",
                value=stated,
                remedy="plan again instead of editing the embedded document",
            )


def _check_selectors(plan: Plan) -> None:
    for field, select in _selectors(plan):
        for place, layers in enumerate(select.ranges):
            if not layers.start < layers.stop <= plan.model.layers:
                which = f".{place}" if isinstance(select.layers, tuple) else ""
                raise BadInputError(
                    f"needs start < stop <= {plan.model.layers} (the model's blocks)",
                    field=f"{field}.select.layers{which}",
                    value=[layers.start, layers.stop],
                    remedy="correct the range",
                )


def _check_cache_use(plan: Plan) -> None:
    try:
        check_cache_use(plan.model, plan.schedule.cache)
    except UsageError as error:
        message, remedy = error.message, "plan again without an activation cache"
        raise BadInputError(message, field="schedule.cache.holds", remedy=remedy) from error
    if plan.schedule.cache.holds == "activations" and plan.workload.prefix_tokens:
        message, remedy = "a prompt pass reads keys and values of known tokens", "plan without an activation cache"
        raise BadInputError(message, field="workload.prefix_tokens", remedy=remedy)


def _selectors(plan: Plan) -> Iterator[tuple[str, Select]]:
    for name in ("residence", "kv", "compute", "expert_slots"):
        for index, rule in enumerate(getattr(plan, name)):
            yield f"{name}.{index}", rule.select


def _check_homes(plan: Plan) -> None:
    known = {memory.name for memory in plan.hardware.memories}
    placed = shaped(plan)
    weights = {memory for tensor in tensors(plan.model) for memory in _copies(placed, tensor)}
    caches = {piece.rule.memory for layer in range(plan.model.layers) for piece in pieces_of(placed, layer)}
    caches |= {rule.memory for rule in stores(plan)} | {cache.memory for cache in windows(plan)}
    for field, used in (("residence", weights), ("kv", caches)):
        if used - known:
            raise BadInputError(
                "no such memory in the plan's hardware",
                field=field,
                value=sorted(used - known)[0],
                remedy=f"use one of {', '.join(sorted(known))}",
            )


def _copies(plan: Placed, tensor: Tensor) -> Iterator[str]:
    for piece in homes(plan, tensor):
        yield from (piece.rule.memory, *piece.rule.replicas)


def _check_exclusive(plan: Plan) -> None:
    used = devices_used(plan)
    for name in used:
        for other in plan.hardware.device(name).excludes:
            if other in used:
                raise BadInputError(
                    f"{name} and {other} are made of the same cores", field="compute", remedy="use one of them"
                )


def _check_context(plan: Plan) -> None:
    longest = plan.model.max_context
    if plan.workload.context > longest:
        raise BadInputError(
            f"exceeds the model's {longest} positions",
            field="workload.context",
            value=plan.workload.context,
            remedy=f"plan for at most {longest}",
        )


def check_memory(placed: Placed, drafting: Drafting | None = None) -> None:
    """Raise InfeasibleError where a placement, and what drafts tokens for it, do not fit a memory."""
    uses = memory_use(placed)
    uses = uses if drafting is None else with_drafter(uses, placed, drafting)
    for memory, missing in shortages(uses).items():
        use = next(use for use in uses if use.memory == memory)
        raise InfeasibleError(
            f"the plan needs {format_bytes(use.used)} {memory_place(placed.hardware, memory)}, where there are "
            f"{format_bytes(use.available)}",
            field=f"hardware.memories.{memory}",
            remedy=f"move {format_bytes(missing)} elsewhere, or plan again",
        )
