"""Simulate decoding with drafts: every pass replayed in virtual time, and acceptances drawn."""

from random import Random

from helmsman.lowering.lower import lower
from helmsman.lowering.placement import Placed
from helmsman.planner.cost.model import CostModel
from helmsman.planner.cost.plan_costs import cost_model
from helmsman.planner.prediction.drafts import (
    DraftQuestion,
    copy_back,
    draft_pass,
    drafter_of,
    verifying_pass,
    verifying_seconds,
)
from helmsman.scheduler.iteration import Iteration
from helmsman.schemas.plan import Plan
from helmsman.schemas.replay_report import ReplayedDrafts
from helmsman.simulator.replay import replay
from helmsman.timing.works import apart


def simulate_drafts(plan: Plan, tokens: int, seed: int = 0) -> ReplayedDrafts | None:
    """Return the steps that make at least `tokens` tokens of a sequence, with passes at the mean context; None for a
    plan without drafts.

    Drafts are accepted, one after the other until one is not, with the plan's probability; the sequences of a batch are
    taken to accept alike. Deterministic for a seed."""
    drafting = plan.drafting
    if drafting is None:
        return None
    question = DraftQuestion(drafting.tokens, drafting.acceptance, drafting.model)
    costs = cost_model(plan).without_table()
    draft = _seconds(drafter_of(plan, question), draft_pass(plan), costs)
    back, passed = copy_back(plan, costs), _seconds(plan, verifying_pass(plan, drafting.tokens), costs)
    step = drafting.tokens * draft + verifying_seconds(passed, back, drafting.tokens)
    draws, made, steps, rejected = Random(seed), 0, 0, 0
    while made < tokens:
        accepted = 0
        while accepted < drafting.tokens and draws.random() < drafting.acceptance:
            accepted += 1
        made, steps, rejected = made + 1 + accepted, steps + 1, rejected + (accepted < drafting.tokens)
    seconds = steps * step + rejected * back
    return ReplayedDrafts(
        steps=steps,
        drafted=steps * drafting.tokens,
        accepted=made - steps,
        tokens=made,
        seconds=seconds,
        tokens_per_second=plan.workload.batch * made / seconds,
    )


def _seconds(placed: Placed, iteration: Iteration, costs: CostModel) -> float:
    """Return the seconds of a pass alone."""
    graph = lower(placed, iteration)
    made = replay(graph, lambda task: costs.price(task).mid, placed.hardware, costs.slowed(), costs.between())
    return made.makespan + costs.between().begins(apart(graph))
