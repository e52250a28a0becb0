"""Predict decoding with drafts: passes of a drafter, one after the other, and a pass that verifies what they propose.

A step of K drafts takes K D + V seconds: D of a pass of the drafter, V of a decode pass of the plan over 1 + K tokens
of every sequence, whose experts are those that any of them chooses, with logits of all. Where a draft is accepted with
probability A once all before it were, a step makes 1 + A + ... + A^K tokens of a sequence. A draft head takes in
accepted tokens with its first draft, which costs a pass of one token here. Where mixers keep states, V has a copy of
them behind every draft, and a step in which one is rejected one more, which puts them back. Tables of measured steps
are not asked: they are of single tokens."""

from dataclasses import dataclass

from helmsman.lowering.draft_head import MOST_DRAFTS, draft_head, drafting_model
from helmsman.lowering.drafter import drafter_rules, shares_head
from helmsman.lowering.layer_cache import keeps_states
from helmsman.lowering.pass_shape import pass_of
from helmsman.lowering.placement import Placement, batches_together, known
from helmsman.lowering.tensors import tensors
from helmsman.planner.cost.model import CostModel
from helmsman.planner.cost.plan_costs import cost_model
from helmsman.planner.cost.state_copies import copy_seconds
from helmsman.planner.memory.cache_bytes import states_by_device
from helmsman.planner.memory.usage import memory_use, with_drafter
from helmsman.planner.prediction.predict import mean_step, pass_seconds
from helmsman.scheduler.iteration import Iteration, verification
from helmsman.schemas.errors import UsageError
from helmsman.schemas.formats import size_of
from helmsman.schemas.model import Model
from helmsman.schemas.plan import Drafting, Plan


@dataclass(frozen=True, slots=True)
class DraftQuestion:
    """Asks for decode steps with drafts: `tokens`, how many drafts every step verifies; `model`, the drafter, or None
    for the plan's own draft head; `acceptance`, the probability that a draft is accepted if all before it were."""

    tokens: int
    acceptance: float
    model: Model | None = None


def check_question(question: DraftQuestion, model: Model) -> None:
    """Raise UsageError or BadInputError for drafts that make no sense for a model."""
    if not 0.0 <= question.acceptance <= 1.0:
        raise UsageError("not a probability", field="acceptance", value=question.acceptance, remedy="use 0 to 1")
    if not 1 <= question.tokens <= MOST_DRAFTS:
        remedy = f"use 1 to {MOST_DRAFTS}"
        raise UsageError("not a number of drafts", field="draft_tokens", value=question.tokens, remedy=remedy)
    drafter = question.model
    if drafter is None:
        draft_head(model)
        return
    if drafter.vocab != model.vocab:
        message = f"{drafter.name} has {drafter.vocab} tokens, and {model.name} {model.vocab}"
        raise UsageError(message, field="draft", value=drafter.name, remedy="name a model of the same vocabulary")
    if keeps_states(drafter):
        message = f"{drafter.name} keeps states, which a rejected draft would have changed"
        raise UsageError(message, field="draft", value=drafter.name, remedy="name a model of attention alone")


def expected_tokens(acceptance: float, drafts: int) -> float:
    """Return how many tokens of a sequence a step is expected to make."""
    return sum(acceptance**accepted for accepted in range(drafts + 1))


def drafter_of(plan: Plan, question: DraftQuestion) -> Placement:
    """Return the drafter beside a plan (`lowering.drafter`)."""
    return Placement(
        model=question.model or drafting_model(plan.model),
        hardware=plan.hardware,
        workload=plan.workload.model_copy(update={"routing": None}),
        activations=plan.activations,
        **drafter_rules(plan)._asdict(),
    )


def drafter_bytes(plan: Plan, question: DraftQuestion) -> int:
    """Return bytes of a drafter's weights, caches and buffers to work in. A draft head shares the model's table of
    tokens, and its head where that is in the same memory."""
    drafter = drafter_of(plan, question)
    rule = drafter.residence[0]
    use = next(use for use in memory_use(drafter) if use.memory == rule.memory)
    size = use.weights + use.kv + use.buffers
    if question.model is not None:
        return size
    shared = ("embedding", "head") if shares_head(plan) else ("embedding",)
    ends = [tensor for tensor in tensors(drafter.model) if tensor.op in shared and tensor.tied_to is None]
    return size - sum(size_of(tensor.elements, rule.format) for tensor in ends)


def draft_pass(plan: Plan) -> Iteration:
    """Return a pass of a drafter of a plan, at the mean context."""
    return mean_step(plan.workload)


def verifying_pass(plan: Plan, drafts: int) -> Iteration:
    """Return the pass of a plan that verifies so many drafts, at the mean context."""
    step = mean_step(plan.workload)
    return verification(plan.workload.batch, drafts, max(1, min(step.context, plan.workload.context - drafts)))


def copy_back(plan: Plan, costs: CostModel) -> float:
    """Return seconds of a copy of all states: of a snapshot behind a draft, and of putting one back."""
    return copy_seconds(costs, states_by_device(plan))


def verifying_seconds(passed: float, back: float, drafts: int) -> float:
    """Return seconds of a verification: of its pass, and of snapshots behind every draft."""
    return passed + drafts * back


def with_drafts(plan: Plan, question: DraftQuestion) -> Plan:
    """Return the plan with what its drafts need, take and make.

    Raises UsageError for plans whose batches advance together."""
    if batches_together(plan) > 1:
        message, remedy = "drafts of batches that advance together are not planned", "use one batch"
        raise UsageError(message, field="batches", value=plan.workload.batches, remedy=remedy)
    drafter, costs = drafter_of(plan, question), cost_model(plan).without_table()
    draft = pass_seconds(pass_of(known(drafter), draft_pass(plan)), costs)
    back, passed = (
        copy_back(plan, costs),
        pass_seconds(pass_of(known(plan), verifying_pass(plan, question.tokens)), costs),
    )
    verify, rejected = verifying_seconds(passed, back, question.tokens), 1.0 - question.acceptance**question.tokens
    expected = expected_tokens(question.acceptance, question.tokens)
    drafting = Drafting(
        model=question.model,
        device=drafter.compute[0].device,
        memory=drafter.residence[0].memory,
        tokens=question.tokens,
        acceptance=question.acceptance,
        size=drafter_bytes(plan, question),
        draft=draft,
        verify=verify,
        back=back,
        expected=expected,
        tokens_per_second=plan.workload.batch * expected / (question.tokens * draft + verify + rejected * back),
    )
    predicted = plan.predicted.model_copy(update={"memory": with_drafter(plan.predicted.memory, plan, drafting)})
    return plan.model_copy(update={"predicted": predicted, "drafting": drafting})
