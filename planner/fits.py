"""Whether a request has a plan, and the longest context for which it has one."""

from collections.abc import Callable
from typing import Any

from helmsman.planner.batches.largest import most
from helmsman.planner.checks.format_check import check_formats
from helmsman.planner.mixed_formats import decide_mixed, places_own_formats
from helmsman.planner.registry import method
from helmsman.planner.request import PlanRequest
from helmsman.planner.tensor_formats import weights_size
from helmsman.schemas.errors import InfeasibleError, UsageError
from helmsman.schemas.storage import STORAGE


def fits(request: PlanRequest[Any]) -> bool:
    """Whether the request's strategy has a plan for the workload as it is, limits of its phases included.

    Asks the strategy's own memory check where it has one that is quicker than planning. Raises UsageError."""
    check_formats(request)
    chosen = method(request.strategy)
    if chosen.fits is not None and (places_own_formats(request) or not request.formats):
        return chosen.fits(request)
    try:
        decide_mixed(request, chosen.decide, chosen.propose)
    except InfeasibleError:
        return False
    return True


def would_fit(request: PlanRequest[Any]) -> bool:
    """Whether a request that nobody has made yet has a plan that fits: one that its strategy refuses has none, nor has
    one whose weights are larger than all memories, storage among them where strategies that read it know the model."""
    stored_as_used = getattr(request.options, "compress", "none") == "none"
    whole = weights_size(request.model, request.formats, request.weights)
    usable = [one for one in request.hardware.memories if one.kind != STORAGE or request.model.is_dense]
    if stored_as_used and whole > sum(memory.available for memory in usable):
        return False
    try:
        return fits(request)
    except UsageError:
        return False


def longest_context(
    request: PlanRequest[Any], limit: int | None = None, fits: Callable[[PlanRequest[Any]], bool] = fits
) -> int:
    """Return the most tokens of each sequence for which the strategy has a plan: of a prompt as long as there is room
    for, and one token after it; 0 where there is none for any. `limit`: the most that is asked about, by default what
    the model was made for. Raises what `fits` raises: UsageError."""
    request.check_undrafted("the longest context")
    work = request.workload

    def holds(context: int) -> bool:
        prompt = max(1, min(work.prompt_tokens, context - 1))
        known = min(work.prefix_tokens, prompt - 1)
        return fits(request.sized(context=context, prompt_tokens=prompt, output_tokens=1, prefix_tokens=known))

    return most(limit or request.model.max_context, holds)
