"""Plans that divide the experts of a model between a host and an accelerator."""

from plans import make_hardware, make_plan

from helmsman.planner.machine import roles
from helmsman.planner.strategies.expert_split.layout import ExpertLayout, place
from helmsman.planner.strategies.streaming.place import Frame
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.model import Model
from helmsman.schemas.plan import Plan
from helmsman.schemas.workload import Workload


def divided_plan(model: Model, layout: ExpertLayout, workload: Workload, hardware: Hardware | None = None) -> Plan:
    """Return the plan of a layout of `expert-split`, everything in f32."""
    plan = make_plan(model, 0, workload=workload, hardware=hardware or make_hardware())
    placed = place(Frame(model, roles(plan.hardware), workload, "f32", "f32", fused=True), layout)
    rules = {name: getattr(placed, name) for name in ("residence", "kv", "compute", "schedule", "expert_slots")}
    return plan.model_copy(update=rules)
