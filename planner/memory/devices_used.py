"""Which devices, and so which memories, run the operations of a placement."""

from helmsman.lowering.bodies.experts import EXPERT_PRODUCTS
from helmsman.lowering.ops import block_index, end_index, op_extent
from helmsman.lowering.placement import KnownPlan, Placed, known
from helmsman.lowering.rules import places
from helmsman.planner.memory.alike_blocks import alike
from helmsman.scheduler.iteration import PHASES, Phase


def devices_used(placed: Placed) -> tuple[str, ...]:
    """Return devices that run at least one operation or a part of one, in the hardware's order."""
    plan = known(placed)
    return plan.fact("devices used", lambda: _used(plan))


def devices_beside_experts(placed: Placed) -> tuple[str, ...]:
    """Return devices that run anything but routed experts, in the hardware's order."""
    plan = known(placed)
    return plan.fact("devices beside experts", lambda: _used(plan, frozenset(EXPERT_PRODUCTS)))


def _used(placed: KnownPlan, without: frozenset[str] = frozenset()) -> tuple[str, ...]:
    used = set[str]()
    ends = [(op, None) for op in end_index(placed.model)]
    without |= {"attention"}
    inside = [(op, layer) for layer in alike(placed) for op in block_index(placed.model, layer) if op not in without]
    for op, layer in (*ends, *inside):
        axis, extent = op_extent(placed.model, op, layer)
        for phase in PHASES:
            used |= {piece.rule.device for piece in places(placed, op, layer, phase, extent, axis)}
    return tuple(device.name for device in placed.hardware.devices if device.name in used)


def memories_of(placed: Placed, op: str, layer: int | None, phase: Phase) -> set[str]:
    """Return the memories of the devices that run the parts of an operation."""
    axis, extent = op_extent(placed.model, op, layer)
    return {memory_of(placed, piece.rule.device) for piece in places(placed, op, layer, phase, extent, axis)}


def memory_of(placed: Placed, device: str) -> str:
    """The memory of a device."""
    return placed.hardware.device(device).memory
