"""Slots for experts that make way for keys and values."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from helmsman.lowering.placement import Placement
from helmsman.planner.memory.usage import memory_use
from helmsman.schemas.plan import ExpertSlots


def most_slots(plan: Placement) -> int:
    """Return of how many experts a layer has slots, of the layers the one with the most."""
    return max((rule.slots for rule in plan.expert_slots), default=0)


def slots_beside(plan: Placement, lacks: Mapping[str, float]) -> int | None:
    """Return of how many experts every layer may have slots, at most, for the bytes that memories lack to be free; None
    where that is no matter of slots."""
    used = _weights(plan, most_slots(plan))

    def free(slots: int) -> bool:
        left = _weights(plan, slots)
        return all(used[memory] - left[memory] >= missing for memory, missing in lacks.items())

    few, many = 0, most_slots(plan)
    if many == 0 or not free(0):
        return None
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (middle, many) if free(middle) else (few, middle)
    return few


def _weights(plan: Placement, slots: int) -> dict[str, int]:
    """Return bytes of weights by memory, with no more slots in any layer."""
    fewer = replace(plan, expert_slots=tuple(_at_most(plan.expert_slots, slots)))
    return {use.memory: use.weights for use in memory_use(fewer)}


def _at_most(rules: Iterable[ExpertSlots], slots: int) -> Iterable[ExpertSlots]:
    return (rule.model_copy(update={"slots": min(rule.slots, slots)}) for rule in rules)
