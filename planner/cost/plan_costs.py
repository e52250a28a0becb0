"""The cost model that a plan was made with."""

from helmsman.lowering.placement import Placed
from helmsman.planner.cost.footprint import at_footprint
from helmsman.planner.cost.model import CostModel, CostOptions, shared_costs
from helmsman.planner.cost.table_prices import table_prices
from helmsman.schemas.errors import BadInputError
from helmsman.schemas.plan import Plan, Strategy
from helmsman.schemas.same import Same


def cost_model(plan: Plan, file: str | None = None) -> CostModel:
    """The cost model of the plan's hardware under the options recorded in its strategy.

    Raises BadInputError, naming `file`, for an option that is not true or false."""
    return costs_of(plan, plan.strategy, file)


def costs_of(placed: Placed, strategy: Strategy, file: str | None = None) -> CostModel:
    """The same of a plan that is not written down yet."""

    def switch(name: str, default: bool) -> bool:
        return _switch(strategy, name, default, file)

    return CostModel(
        at_footprint(placed),
        CostOptions(switch("corrections", True), switch("l3_blend", False), switch("capped", True)),
        table_prices(placed) if switch("operation_table", False) else None,
    )


def costs_of_placement(placed: Placed, options: CostOptions) -> CostModel:
    """Prices of a placement: of the operation table that fits it, and rooflines for the rest; those of rooflines alone
    are remembered with the machine."""
    hardware, table = at_footprint(placed), table_prices(placed)
    return shared_costs(Same(hardware), options) if table is None else CostModel(hardware, options, table)


def _switch(strategy: Strategy, name: str, default: bool, file: str | None) -> bool:
    value = strategy.options.get(name, default)
    if not isinstance(value, bool):
        field, remedy = f"strategy.options.{name}", "write true or false, or plan again"
        raise BadInputError("true or false is expected", file=file, field=field, value=value, remedy=remedy)
    return value
