"""The contract of the native scheduling core. Seconds, tokens; costs, limits and work are those of this room."""

from helmsman.scheduler.cost import IterationCost
from helmsman.scheduler.iteration_times import Work

def pass_times(
    cost: IterationCost, kind: str, first: Work, second: Work, cohort: Work, done_layers: int = 0
) -> tuple[float, float, float, float]:
    """(seconds, accelerator, host, link) of a pass: how long it takes, and each side works in it.

    `kind`: gpu-only, simple, pipelined or deferred. `cohort`: requests on the host that join one layer's linear stage
    (deferred), or the part of `second` that has `done_layers` layers behind it (pipelined)."""
