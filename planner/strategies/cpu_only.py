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
    return replace(decision, plan=named)


def _processors(hardware: Hardware) -> Hardware:
    """The machine's processors and their memory, without links."""
    solo = roles(hardware).solo.model_copy(update={"excludes": ()})
    return hardware.model_copy(
        update={"devices": (solo,), "memories": (hardware.memory(solo.memory),), "links": (), "tables": ()}
    )


STRATEGY = Method("cpu-only", "everything on the processors, whatever else the machine has", CpuOnlyOptions, _decide)
