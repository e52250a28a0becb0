"""Slots for experts that could not do what they say, each named by its rule."""

from helmsman.lowering.bodies.experts import EXPERTS, UP
from helmsman.lowering.placement import KnownPlan, Placed, known
from helmsman.lowering.routing import experts_of
from helmsman.lowering.rules import homes, places, slots_of
from helmsman.lowering.tensors import block_tensors
from helmsman.planner.memory.alike_blocks import alike
from helmsman.planner.memory.devices_used import memory_of
from helmsman.scheduler.iteration import PHASES
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.plan import ExpertSlots


def check_slots(plan: Placed) -> None:
    """Raise BadInputError for slots in a memory where nothing computes, of blocks without experts, more than there are
    experts, for what is there already, for operations that rules divide, and in passes that do not know slots."""
    if not plan.expert_slots:
        return
    _check_pass(plan)
    for index, rule in enumerate(plan.expert_slots):
        _check_rule(plan, f"expert_slots.{index}", rule)
    placed = known(plan)
    for layer in alike(placed):
        own = slots_of(plan.expert_slots, layer)
        if own is not None:
            _check_layer(placed, f"expert_slots.{plan.expert_slots.index(own)}", own, layer)


def _check_pass(plan: Placed) -> None:
    faults = {
        "schedule.barrier": plan.schedule.barrier,
        "schedule.order": plan.schedule.order == "layer-major" and plan.workload.batches > 1,
    }
    for field, wrong in faults.items():
        if wrong:
            raise BadInputError("does not go with slots for experts", field=field, remedy="leave it out, or the slots")


def _check_rule(plan: Placed, field: str, rule: ExpertSlots) -> None:
    known_names = [memory.name for memory in plan.hardware.memories]
    if rule.memory not in known_names:
        message, remedy = "no such memory in the plan's hardware", f"use one of {', '.join(sorted(known_names))}"
        raise BadInputError(message, field=f"{field}.memory", value=rule.memory, remedy=remedy)
    if all(device.memory != rule.memory for device in plan.hardware.devices):
        message, remedy = "no device computes there", "name the memory of an accelerator"
        raise BadInputError(message, field=f"{field}.memory", value=rule.memory, remedy=remedy)
    if rule.select.names not in ("*", EXPERTS) or rule.select.part is not None:
        message, remedy = "slots hold whole experts, all their matrices", f"select {EXPERTS}, without a part"
        raise BadInputError(message, field=f"{field}.select", value=rule.select.names, remedy=remedy)
    layers = [layer for layer in range(plan.model.layers) if slots_of((rule,), layer) is not None]
    if not any(experts_of(plan.model, layer) for layer in layers):
        message, remedy = "no block with routed experts is selected", "select layers that have some"
        raise BadInputError(message, field=f"{field}.select", remedy=remedy)


def _check_layer(plan: KnownPlan, field: str, rule: ExpertSlots, layer: int) -> None:
    experts = experts_of(plan.model, layer)
    if experts is None:
        return
    if rule.slots > experts.experts:
        message, remedy = f"block {layer} has {experts.experts} experts", f"write {experts.experts} or fewer"
        raise BadInputError(message, field=f"{field}.slots", value=rule.slots, remedy=remedy)
    stacked = [tensor for tensor in block_tensors(plan.model, layer) if tensor.stacked]
    for piece in (piece for tensor in stacked for piece in homes(plan, tensor)):
        if rule.memory in (piece.rule.memory, *piece.rule.replicas):
            message, remedy = f"experts of block {layer} are there already", "keep them elsewhere, or leave slots out"
            raise BadInputError(message, field=f"{field}.memory", value=rule.memory, remedy=remedy)
    for phase in PHASES:
        devices = {piece.rule.device for piece in places(plan, UP, layer, phase, experts.experts, "experts")}
        if len(devices) > 1:
            message, remedy = f"rules divide the experts of block {layer}", "give all of them to one device"
            raise BadInputError(message, field="compute", value=sorted(devices), remedy=remedy)
        here = memory_of(plan, devices.pop()) == rule.memory
        if phase == "decode" and here != (rule.misses == "fetched"):
            where = "on the device of the slots" if here else "elsewhere"
            message, remedy = f"experts of block {layer} are computed {where}", "write fetched there, host elsewhere"
            raise BadInputError(message, field=f"{field}.misses", value=rule.misses, remedy=remedy)
