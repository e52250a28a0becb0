"""The cost model that a plan was made with."""

from helmsman.planner.cost.footprint import at_footprint
from helmsman.planner.cost.model import CostModel, CostOptions
from helmsman.planner.cost.table_prices import table_prices
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.plan import Plan


def cost_model(plan: Plan, file: str | None = None) -> CostModel:
    """The cost model of the plan's hardware under the options recorded in its strategy.

    Raises BadInputError, naming `file`, for an option that is not true or false."""
    return CostModel(
        at_footprint(plan),
        CostOptions(
            _switch(plan, "corrections", True, file),
            _switch(plan, "l3_blend", False, file),
            _switch(plan, "capped", True, file),
        ),
        table_prices(plan) if _switch(plan, "operation_table", False, file) else None,
    )


def _switch(plan: Plan, name: str, default: bool, file: str | None) -> bool:
    value = plan.strategy.options.get(name, default)
    if not isinstance(value, bool):
        field, remedy = f"strategy.options.{name}", "write true or false, or plan again"
        raise BadInputError("true or false is expected", file=file, field=field, value=value, remedy=remedy)
    return value
