"""The prices of a plan's tasks in virtual time: medians of the cost model that the plan was made with."""

from helmsman.planner.cost.plan_costs import cost_model
from helmsman.schemas.plan import Plan
from helmsman.simulator.replay import Price
from helmsman.simulator.stream import remembering


def median_price(plan: Plan, file: str | None = None) -> Price:
    """Return the median seconds of a task alone on its lane; raises as `cost_model` does."""
    model = cost_model(plan, file)
    return remembering(lambda task: model.price(task).mid)
