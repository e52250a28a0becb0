"""Turn an objective and limits into the aim of a composition."""

from collections.abc import Mapping

from helmsman.planner.prediction.objective import phase_weights
from helmsman.planner.strategies.optimal.search.compositions import Aim
from helmsman.scheduler.iteration import Phase
from helmsman.schemas.objective import Objective
from helmsman.schemas.workload import Workload

_NAMES: Mapping[Objective, str] = {
    "request": "request",
    "latency": "decode step",
    "ttft": "prompt pass",
    "throughput": "request",
}

_STEPS_TOO = 1e-3
"""How much a decode step counts where the prompt is what matters: enough to choose among plans that are equal."""


def aim_of(objective: Objective, workload: Workload, limits: Mapping[Phase, float] | None = None) -> Aim:
    """The decode step, the prompt pass, or both as often as the workload has them; `limits`: seconds of a phase.

    All batches advance together, so a pass is of all of them."""
    weights = dict(phase_weights(objective, workload, together=workload.batches))
    if "decode" in weights:
        return Aim(_NAMES[objective], weights, limits or {})
    return Aim(_NAMES[objective], {**weights, "decode": _STEPS_TOO}, limits or {}, tie="decode")


def tokens_of(objective: Objective, workload: Workload) -> int:
    """Return what is made in the seconds of the objective: a token for every sequence, all of them, or the prompts
    read."""
    counts: Mapping[Objective, int] = {
        "request": workload.output_tokens,
        "latency": 1,
        "ttft": workload.prompt_tokens,
        "throughput": workload.output_tokens,
    }
    return counts[objective] * workload.batch * workload.batches
