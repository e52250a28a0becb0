"""Decisions with drafts: the search leaves room for the drafter, which is where the model's head is computed."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from helmsman.hwdb.load_model import check_context
from helmsman.planner.decision import Decision
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
    memory, size = _needed(first.plan, drafts)
    if _room(first.plan, memory) >= size:
        return replace(first, drafted=with_drafts(first.plan, drafts))
    decision = decide(replace(request, hardware=_without(request.hardware, memory, size)))
    plan = _on(decision.plan, request.hardware)
    if _needed(plan, drafts) != (memory, size) or _room(plan, memory) < size:
        raise _no_room(memory, size)
    return replace(decision, drafted=with_drafts(plan, drafts))


def _needed(plan: Plan, drafts: DraftQuestion) -> tuple[str, int]:
    """Return the memory of a plan's drafter, and the bytes it takes there."""
    return drafter_of(plan, drafts).residence[0].memory, drafter_bytes(plan, drafts)


def _room(plan: Plan, memory: str) -> int:
    """Return the bytes that a plan leaves."""
    use = next(use for use in plan.predicted.memory if use.memory == memory)
    return use.available - use.used


def _without(hardware: Hardware, memory: str, size: int) -> Hardware:
    """Return the machine with less of a memory to use."""
    left = hardware.memory(memory).available - size
    if left <= 0:
        raise _no_room(memory, size)
    memories = tuple(
        one.model_copy(update={"available": left}) if one.name == memory else one for one in hardware.memories
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
