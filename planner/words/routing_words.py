"""The routing that a plan's seconds assume, in words, and how they move in other cases."""

from collections.abc import Iterator, Mapping

from helmsman.lowering.placement import Placed
from helmsman.planner.memory.names import memory_place
from helmsman.schemas.plan import ExpertSlots, Plan
from helmsman.schemas.predicted import CaseName
from helmsman.schemas.units import format_seconds

_CASES: Mapping[CaseName, str] = {
    "uniform": "under uniform routing",
    "least": "by the most favourable trace",
    "most": "by the least favourable trace",
    "cold": "while slots fill",
}
_MISSES = {
    "host": "others are computed where they live",
    "fetched": "others are fetched",
    "divided": "others are computed where they live, or fetched",
}


def routing_words(plan: Plan) -> Iterator[str]:
    """Yield what is assumed of routing, and the seconds of a step and of prompts in other cases; nothing of a model
    without experts."""
    assumed = plan.predicted.routing
    if assumed is None:
        return
    routing = plan.workload.routing
    of = f" of {routing.traces} traces" if routing is not None and routing.traces else ""
    cases = [
        f"{format_seconds(case.decode)} a step {_CASES[case.name]} (prompts {format_seconds(case.prefill)})"
        for case in assumed.cases
    ]
    yield f"routing      {'; '.join([f'{assumed.assumed}{of}', *cases])}"


def slot_words(plan: Placed) -> Iterator[str]:
    """Yield by rule how many experts of a layer are cached where, and what happens to the others."""
    for rule in plan.expert_slots:
        kept = f"{rule.slots} experts " + ("used last" if rule.eviction == "least-recent" else "most popular")
        place = memory_place(plan.hardware, rule.memory)
        yield f"of {_blocks(plan, rule)} the {kept} {place}; {_MISSES[rule.misses]}"


def _blocks(plan: Placed, rule: ExpertSlots) -> str:
    """Return `blocks 1-19`, counted as the strip does, from one."""
    ranges = rule.select.ranges
    if not ranges:
        return f"blocks 1-{plan.model.layers}"
    return "blocks " + ", ".join(
        f"{span.stop}" if span.stop == span.start + 1 else f"{span.start + 1}-{span.stop}" for span in ranges
    )
