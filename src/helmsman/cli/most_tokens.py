"""`--batch best`, `--batches best`: the division into batches whose plan makes the most tokens/s."""

import argparse
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from helmsman.cli.batches import BEST
from helmsman.cli.progress import progress
from helmsman.schemas.errors import InfeasibleError

if TYPE_CHECKING:
    from helmsman.cli.strategies import Decided
    from helmsman.planner.best_batches import Answer, Division, Refusal
    from helmsman.schemas.plan import Plan
    from helmsman.schemas.workload import Workload


def most_tokens(args: argparse.Namespace, workload: "Workload", decide: "Callable[[Workload], Decided]") -> "Decided":
    """What `decide` answers for the best division, with what was considered in its plan.

    Raises InfeasibleError, as for the smallest division, when not even that has a plan."""
    from helmsman.planner.best_batches import BestBatches, Refusal

    decided: dict[Division, Decided] = {}
    with progress(None, args.quiet or args.json) as tell:

        def ask(division: "Division") -> "Answer | Refusal":
            tell(f"{division.batches} x {division.batch}")
            try:
                decided[division] = decide(workload.model_copy(update=division._asdict()))
            except InfeasibleError as error:
                return Refusal(error.largest_batch)
            return _answer(decided[division][0].plan, getattr(args, "compress", "none") == "none")

        batch = None if args.batch == BEST else workload.batch
        batches = None if args.batches == BEST else workload.batches
        search = BestBatches(ask, workload.output_tokens, batch, batches)
        best = search.best()
    if best is None:
        return decide(workload)
    decision, drawn, parts = decided[best]
    plan = decision.plan.model_copy(update={"considered": search.considered()})
    return replace(decision, plan=plan), drawn, parts


def _answer(plan: "Plan", proves: bool) -> "Answer":
    """What a plan makes, and the least seconds of any: what its bound `proves` where formats are those asked for."""
    from helmsman.analysis.comparison import speed
    from helmsman.lowering.placement import batches_together
    from helmsman.planner.best_batches import Answer
    from helmsman.planner.objective import objective_bound

    work, together = plan.workload, batches_together(plan)
    least = objective_bound(plan.predicted, work, together, "request") if proves else 0.0
    return Answer(speed(plan).rate.mid, least, together < work.batches)
