"""Tokens/s that a plan predicts of llama-bench's tests: passes of other lengths than its own."""

from helmsman.executor.measuring.bench import Test
from helmsman.lowering.paging import passes_of
from helmsman.lowering.pass_shape import pass_of
from helmsman.lowering.placement import batches_together, known
from helmsman.planner.cost.plan_costs import cost_model
from helmsman.planner.prediction.predict import pass_interval
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.plan import Plan
from helmsman.schemas.predicted import Interval


def predicted_rate(plan: Plan, test: Test) -> Interval | None:
    """Return tokens/s of a test's prompt, or of the middle one of its decode steps; None for a prompt at a depth, which
    a plan does not price."""
    if test.prompt and test.depth:
        return None
    work, placed, costs = plan.workload, known(plan), cost_model(plan)
    if test.prompt:
        alone = work.model_copy(update={"prompt_tokens": test.prompt, "output_tokens": 1, "prefix_tokens": 0})
        iterations = passes_of(plan, alone).prompt
    else:
        middle = max(test.depth, 1) + (test.steps + 1) // 2
        iterations = (Iteration(1, "decode", work.batch, 1, middle, batches_together(plan)),)
    passes = [pass_interval(pass_of(placed, iteration), costs) for iteration in iterations]
    tokens = work.batch * (test.prompt or 1)
    low, mid, high = (sum(getattr(one, end) for one in passes) for end in ("low", "mid", "high"))
    return Interval(low=tokens / high, mid=tokens / mid, high=tokens / low)
