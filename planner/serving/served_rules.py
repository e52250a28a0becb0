"""The rules of a plan that says where experts have slots or are computed, as requests are served: prompts and tokens go
through a pass together, by one rule.

Where decode steps compute experts prompts do, too, wherever the plan computes these; rows of a table that lies on the
host come to the device instead of being looked up by the host."""

from typing import Any

from helmsman.lowering.bodies.experts import EXPERT_PRODUCTS, EXPERTS
from helmsman.lowering.placement import Placed, Placement
from helmsman.lowering.stages import beginnings
from helmsman.schemas.model import Model
from helmsman.schemas.plan import ComputeRule, Plan


def served_placement(placed: Placed) -> Placed:
    """Return a placement by the rules of its served passes."""
    changes = _changes(placed)
    if not changes:
        return placed
    rules = placed.residence, placed.kv, changes["compute"]
    others = placed.activations, changes["schedule"], placed.expert_slots
    return Placement(placed.model, placed.hardware, placed.workload, *rules, *others)


def served_plan(plan: Plan) -> Plan:
    """Return a plan by the rules of its served passes."""
    return plan.model_copy(update=_changes(plan))


def _changes(placed: Placed) -> dict[str, Any]:
    """Return what differs: nothing but where experts have slots or rules of their own."""
    if not placed.expert_slots and not any(map(_of_experts, placed.compute)):
        return {}
    return {
        "compute": tuple(_served(rule) for rule in placed.compute if not _elsewhere(placed.model, rule)),
        "schedule": placed.schedule.model_copy(update={"overlap": "none", "prefetch": 0}),
    }


def _elsewhere(model: Model, rule: ComputeRule) -> bool:
    """Whether a rule says where prompts compute experts, or where tokens are looked up."""
    return (rule.phase == "prefill" and _of_experts(rule)) or rule.select.names in beginnings(model)


def _served(rule: ComputeRule) -> ComputeRule:
    """Return a rule that holds for prompts as well, where it says where tokens compute experts."""
    return rule.model_copy(update={"phase": None}) if _of_experts(rule) else rule


def _of_experts(rule: ComputeRule) -> bool:
    return rule.select.names in (EXPERTS, *EXPERT_PRODUCTS)
