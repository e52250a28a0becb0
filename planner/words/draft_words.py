"""Drafts of a plan in words."""

from collections.abc import Iterator

from helmsman.schemas.plan import Plan
from helmsman.schemas.units import format_bytes, format_number, format_seconds


def draft_words(plan: Plan, exact: bool) -> Iterator[str]:
    """Yield tokens/s with drafts, beside those without; `exact`: also what a step is the sum of, and the bytes."""
    drafting = plan.drafting
    if drafting is None:
        return
    gain = drafting.tokens_per_second / plan.predicted.tokens_per_second.mid
    drafter = "its draft head" if drafting.model is None else drafting.model.name
    yield (
        f"drafts       {format_number(drafting.tokens_per_second, 4)} tokens/s ({gain:.2f}x): {drafting.tokens} of "
        f"{drafter} a step, each accepted with {drafting.acceptance:.0%} as assumed"
    )
    if exact:
        yield (
            f"draft step   {drafting.tokens} x {format_seconds(drafting.draft)} + {format_seconds(drafting.verify)} to "
            f"verify, {drafting.expected:.2f} tokens expected; the drafter takes {format_bytes(drafting.size)} of "
            f"{drafting.memory}"
        )
