"""The prices of a plan's tasks: the cost model with the options that the plan was made with."""

from helmsman.planner.costs import CostModel, CostOptions
from helmsman.schemas.plan import Plan
from helmsman.simulator.replay import Price
from helmsman.simulator.stream import remembering


def cost_model(plan: Plan) -> CostModel:
    """The cost model of the plan's hardware under the options recorded in its strategy."""
    options = plan.strategy.options
    corrections, blend = options.get("corrections", True), options.get("l3_blend", False)
    return CostModel(plan.hardware, CostOptions(bool(corrections), bool(blend)))


def median_price(plan: Plan) -> Price:
    """The median seconds of a task alone on its lane."""
    model = cost_model(plan)
    return remembering(lambda task: model.price(task).mid)
