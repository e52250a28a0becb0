"""Decisions with drafts: the search leaves room for the drafter, which is where the model's head is computed."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from helmsman.hwdb.load_model import check_context
from helmsman.planner.decision import Decision
from helmsman.planner.memory.cache_bytes import snapshots_by_memory
from helmsman.planner.prediction.drafts import DraftQuestion, check_question, drafter_bytes, drafter_of, with_drafts
from helmsman.planner.request import PlanRequest
from helmsman.schemas.errors import InfeasibleError, UsageError
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import digest
from helmsman.schemas.units import format_bytes

Decide = Callable[[PlanRequest[Any]], Decision]


def decide_drafted(request: PlanRequest[Any], drafts: DraftQuestion, decide: Decide) -> Decision:
    """Return the decision on a request with drafts: the plan without them if it leaves the drafter room, else one of a
    search that has less memory by the drafter's bytes.

    Raises what `decide` raises, and InfeasibleError where the drafter itself has no room."""
    check_question(drafts, request.model)
    if drafts.model is not None:
        check_context(drafts.model, request.workload.context)
    if request.batch is not None or request.batches is not None:
        message, remedy = "plans with drafts have one batch", "give numbers of sequences and batches"
        raise UsageError(message, field="draft", remedy=remedy)
    first = decide(request)
    needed = _needed(first.plan, drafts)
    if _lacking(first.plan, needed) is None:
        return replace(first, drafted=with_drafts(first.plan, drafts))
    decision = decide(replace(request, hardware=_without(request.hardware, needed)))
    plan = _on(decision.plan, request.hardware)
    needed = _needed(plan, drafts)
    lacking = _lacking(plan, needed)
    if lacking is not None:
        raise _no_room(lacking, needed[lacking])
    return replace(decision, drafted=with_drafts(plan, drafts))


def _needed(plan: Plan, drafts: DraftQuestion) -> dict[str, int]:
    """Return by memory the bytes that a plan's drafter takes, and snapshots of states behind drafts."""
    sizes, memory = snapshots_by_memory(plan, drafts.tokens), drafter_of(plan, drafts).residence[0].memory
    return {**sizes, memory: sizes.get(memory, 0) + drafter_bytes(plan, drafts)}


def _lacking(plan: Plan, needed: Mapping[str, int]) -> str | None:
    """Return the first memory in which a plan leaves less than that."""
    return next((memory for memory, size in needed.items() if _room(plan, memory) < size), None)


def _room(plan: Plan, memory: str) -> int:
    """Return the bytes that a plan leaves."""
    use = next(use for use in plan.predicted.memory if use.memory == memory)
    return use.available - use.used


def _without(hardware: Hardware, needed: Mapping[str, int]) -> Hardware:
    """Return the machine with less of its memories to use."""
    left = {memory: hardware.memory(memory).available - size for memory, size in needed.items()}
    for memory, size in needed.items():
        if left[memory] <= 0:
            raise _no_room(memory, size)
    memories = tuple(
        one.model_copy(update={"available": left[one.name]}) if one.name in left else one for one in hardware.memories
    )
    return hardware.model_copy(update={"memories": memories})


def _on(plan: Plan, hardware: Hardware) -> Plan:
    """Return the plan on the whole machine."""
    available = {memory.name: memory.available for memory in hardware.memories}
    memories = tuple(
        memory.model_copy(update={"available": available[memory.name]}) for memory in plan.hardware.memories
    )
    uses = tuple(use.model_copy(update={"available": available[use.memory]}) for use in plan.predicted.memory)
    whole = plan.hardware.model_copy(update={"memories": memories})
    predicted = plan.predicted.model_copy(update={"memory": uses})
    return plan.model_copy(update={"hardware": whole, "hardware_sha256": digest(whole), "predicted": predicted})


def _no_room(memory: str, size: int) -> InfeasibleError:
    message = f"the drafter needs {format_bytes(size)} of {memory}, beside the plan"
    return InfeasibleError(message, field="draft", remedy="use a smaller drafter or format, or leave drafts out")
