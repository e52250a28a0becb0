"""What Helm does, as functions: each takes names or documents, and returns documents.

Errors are `HelmError`: UsageError for what makes no sense, BadInputError for a document or file that cannot be
accepted, InfeasibleError, with the smallest change that would do, where nothing fits."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from helmsman.hwdb import compose
from helmsman.hwdb import load_hardware as records
from helmsman.planner.decision import Decision
from helmsman.planner.request import PlanRequest
from helmsman.schemas.comparison import Comparison
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.plan import Plan
from helmsman.schemas.plan_question import PlanQuestion

Asked = PlanRequest[Any] | PlanQuestion | Mapping[str, object]
"""A request, or a question as `PlanQuestion` or JSON has it."""


def load_hardware(name: str | Path, profiles: Path | None = None) -> Hardware:
    """Return the machine of a name of the catalogue or of a record's file; `this`: the newest profile in the folder
    `profiles`.

    >>> load_hardware("rtx4060-laptop").memory("vram").capacity
    8589934592
    """
    return records.load_hardware(str(name), profiles)


def compose_hardware(
    cpu: str, ram: int, gpu: str | None = None, link: str | None = None, peer: float | None = None
) -> Hardware:
    """Return a machine of listed parts; `ram`: bytes; `link`, `peer`: as in `ComposedMachine`.

    >>> compose_hardware("AMD Ryzen 9 5950X", 64 * 10**9, "RTX 3090").name
    'rtx3090-amdryzen95950x'
    """
    return compose.compose(gpu, cpu, ram, link, peer)


def plan(question: Asked) -> Decision:
    """Return the best plan for a question, with what it was chosen from.

    >>> decision = plan({"model": "Qwen3-0.6B", "hardware": "rtx4060-laptop", "strategy": "layer-split"})
    >>> decision.plan.label
    'cpu(1)->cuda(29)'
    """
    from helmsman.planner.decide import decide

    return decide(_request(question))


def compare(
    question: Asked,
    strategies: Sequence[str] | None = None,
    options: Mapping[str, str | int | float | bool] | None = None,
    most: int | None = None,
) -> Comparison:
    """Return what several strategies answer, the best first; all of Helm's own by default.

    `options`: of any of them, for those that have it; `most`: also plans for larger batches, up to as many sequences.

    >>> found = compare({"model": "Qwen3-0.6B", "hardware": "rtx4060-laptop"}, ["layer-split", "llama-cpp"])
    >>> [row.verdict for row in found.rows]
    ['fits', 'fits']
    """
    from helmsman.analysis.compare import check_several
    from helmsman.analysis.compare import compare as compared
    from helmsman.planner.registry import OWN, method
    from helmsman.schemas.errors import UsageError

    names, given = tuple(strategies or OWN), dict(options or {})
    for name in names:
        method(name)
    if len(names) < 2:
        raise UsageError("several strategies are compared", field="strategies", value=list(names), remedy="use plan()")
    check_several(given, several=True)
    return compared(_request(question), names, given, most)


def simulate(plan: Plan) -> dict[str, Any]:
    """Return what a replay of all steps of a plan in virtual time gives, as `helm-sim --json` prints it.

    >>> decision = plan({"model": "Qwen3-0.6B", "hardware": "rtx4060-laptop", "strategy": "layer-split"})
    >>> simulate(decision.plan)["ttft_s"] > 0
    True
    """
    from helmsman.planner.plan_costs import cost_model
    from helmsman.simulator.pricing import median_price
    from helmsman.simulator.report import document
    from helmsman.simulator.stream import simulate as replayed
    from helmsman.simulator.synchronisation import synchronisation

    costs = cost_model(plan)
    stream = replayed(plan, median_price(plan), costs.between(), slowed=costs.slowed())
    return document(plan, stream, synchronisation(plan))


def _request(question: Asked) -> PlanRequest[Any]:
    from helmsman.planner.requested import request_from

    return question if isinstance(question, PlanRequest) else request_from(question)
