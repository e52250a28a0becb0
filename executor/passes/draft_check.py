"""Which plans verify drafted tokens: those that can forget what a rejected one left in caches. States are put back."""

from collections.abc import Sequence

from helmsman.executor.passes.phase_pass import PhasePass, caches_native, drops_drafts
from helmsman.lowering.buffers import chunk_of
from helmsman.lowering.draft_head import APART, MOST_DRAFTS, draft_head
from helmsman.lowering.drafter import drafter_rules, shares_head
from helmsman.lowering.placement import batches_together
from helmsman.schemas.errors import UsageError
from helmsman.schemas.plan import Plan

DRAFTING = ("deepseek_v3", "glm4_moe_lite", *APART)
"""Families whose draft heads are run."""


def check_drafts(plan: Plan, passes: Sequence[PhasePass], count: int) -> None:
    """Raise BadInputError for a model without a draft head that is run, UsageError for a number of drafts, or a plan,
    that cannot be verified."""
    most = min(MOST_DRAFTS, chunk_of(plan) - 1)
    if not 1 <= count <= most:
        remedy = f"use 1 to {most}" if most else "plan a smaller batch"
        raise UsageError("not a number of drafts", field="draft_tokens", value=count, remedy=remedy)
    draft_head(plan.model)
    if plan.model.family not in DRAFTING:
        _refuse(f"draft heads of the family {plan.model.family} are not run", "leave drafts out")
    if not caches_native(passes):
        _refuse("drafts are run by processors and loopback accelerators", "plan for them, or leave drafts out")
    if not drops_drafts(passes):
        _refuse(
            "caches of this plan move or forget, and cannot drop rejected drafts", "keep caches where they are used"
        )
    if batches_together(plan) > 1:
        _refuse("drafts are verified for one batch at a time", "plan with one batch")
    if not shares_head(plan):
        memory = drafter_rules(plan).residence[0].memory
        _refuse("a draft head shares the model's head, which this plan keeps elsewhere", f"keep it whole in {memory}")


def _refuse(message: str, remedy: str) -> None:
    raise UsageError(message, field="draft_tokens", remedy=remedy)
