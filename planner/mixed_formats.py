"""A plan whose tensors are kept in several formats, as some files mix them."""

from helmsman.planner.accept import accept
from helmsman.planner.costs import CostModel
from helmsman.planner.predict import predict
from helmsman.planner.tensor_formats import Formats, exceptions
from helmsman.schemas.plan import Plan


def with_formats(plan: Plan, formats: Formats, costs: CostModel) -> Plan:
    """`plan` with every tensor in its own format where its rules say another, predicted again.

    Rules are added before those that they make exceptions of: one for each name, home and format. Raises
    InfeasibleError where the memories do not hold it."""
    own = tuple(exceptions(plan, formats))
    if not own:
        return accept(plan)
    changed = accept(plan.model_copy(update={"residence": (*own, *plan.residence)}))  # only what fits has a bound
    return changed.model_copy(update={"predicted": predict(changed, costs)})
