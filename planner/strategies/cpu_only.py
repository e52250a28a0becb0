"""`cpu-only`: everything on the processors, as if the machine had no accelerator.

It asks `layer-split` by name about such a machine."""

from dataclasses import dataclass, replace

from helmsman.planner.decision import Decision
from helmsman.planner.machine import roles
from helmsman.planner.registry import Method, method
from helmsman.planner.request import PlanRequest
from helmsman.schemas.hardware import Hardware


@dataclass(frozen=True, slots=True)
class CpuOnlyOptions:
    """There is nothing to choose."""


def _decide(request: PlanRequest[CpuOnlyOptions]) -> Decision:
    """The plan of one device, the processors with every core. Raises InfeasibleError where their memory is too
    small."""
    split = method("layer-split")
    alone = replace(request, hardware=_processors(request.hardware), strategy=split.name, options=split.options())
    decision = split.decide(alone)
    plan = decision.plan
    named = plan.model_copy(update={"strategy": plan.strategy.model_copy(update={"name": "cpu-only"})})
    return replace(decision, drafted=named)


def _processors(hardware: Hardware) -> Hardware:
    """The machine's processors and their memory, without links, and what is known of passes that end on them."""
    solo = roles(hardware).solo.model_copy(update={"excludes": ()})
    own = hardware.memory(solo.memory)
    physical = own if own.shares is None else hardware.memory(own.shares)
    memories = (own,) if physical is own else (own, physical)
    between = hardware.between_passes
    known = None if between is None else between.begin.get(solo.name)
    passes = None if between is None or known is None else between.model_copy(update={"begin": {solo.name: known}})
    changes = {"devices": (solo,), "memories": memories, "links": (), "tables": (), "between_passes": passes}
    return hardware.model_copy(update=changes)


STRATEGY = Method(
    "cpu-only", "everything on the processors, whatever else the machine has", CpuOnlyOptions, _decide, own_formats=True
)
