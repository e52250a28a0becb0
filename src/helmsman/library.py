"""What Helm does, as functions: each takes names or documents, and returns documents.

Errors are `HelmError`: UsageError for what makes no sense, BadInputError for a document or file that cannot be
accepted, InfeasibleError, with the smallest change that would do, where nothing fits."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from helmsman.hwdb import load_hardware as records
from helmsman.hwdb import load_model as models
from helmsman.planner.decide import decide
from helmsman.planner.decision import Decision
from helmsman.planner.read_request import machine_of, read_question, request_from
from helmsman.planner.registry import OWN, method
from helmsman.planner.request import PlanRequest
from helmsman.profiles_folder import profiles_folder
from helmsman.schemas.comparison import Comparison
from helmsman.schemas.errors import UsageError
from helmsman.schemas.hardware import Hardware
from helmsman.schemas.model import Model
from helmsman.schemas.plan import Plan
from helmsman.schemas.plan_question import PlanQuestion

Asked = PlanRequest[Any] | PlanQuestion | Mapping[str, object]
"""A request, or a question as `PlanQuestion` or JSON has it; a model and a machine may stand for their names."""


def load_model(name: str | Path) -> Model:
    """Return the model of a name of the catalogue, a checkpoint's directory, a GGUF file or a document.

    >>> load_model("Qwen3-8B").layers
    36
    """
    return models.load_model(str(name))


def load_hardware(name: str | Path, profiles: Path | None = None) -> Hardware:
    """Return the machine of a name of the catalogue or of a record's file; `this`: the newest profile of the machine at
    hand, in the folder `profiles` or where helm-profile leaves them.

    >>> load_hardware("rtx4060-laptop").memory("vram").capacity
    8589934592
    """
    return records.load_hardware(str(name), profiles_folder() if profiles is None else Path(profiles))


def compose_hardware(
    cpu: str, ram: int, gpu: str | None = None, link: str | None = None, peer: float | None = None
) -> Hardware:
    """Return a machine of listed parts; `ram`: bytes; `link`, `peer`: as in `ComposedMachine`.

    >>> compose_hardware("AMD Ryzen 9 5950X", 64 * 10**9, "RTX 3090").name
    'rtx3090-amdryzen95950x'
    """
    parts = {"cpu": cpu, "ram": ram, "gpu": gpu, "link": link, "peer": peer}
    given = {name: value for name, value in parts.items() if value is not None}
    return machine_of(read_question({"model": "-", "hardware": given}))


def plan(question: Asked) -> Decision:
    """Return the best plan for a question, with what it was chosen from.

    >>> decision = plan({"model": "Qwen3-0.6B", "hardware": "rtx4060-laptop", "strategy": "layer-split"})
    >>> decision.plan.label
    'cpu(1)->cuda(29)'
    """
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
    from helmsman.analysis.ask_strategies import check_several
    from helmsman.analysis.ask_strategies import compare as compared

    request, names = _request(question), _names(strategies)
    given = {name: value for name, value in dict(options or {}).items() if value is not None}
    check_several(given, several=True)
    if request.batch is not None or request.batches is not None:
        raise UsageError("every strategy has one of its own", field="batch", value="max, best", remedy="give a number")
    if request.options != method(request.strategy).options():
        raise UsageError("are those of one strategy", field="options", remedy="give them to compare(options=...)")
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or most < request.workload.batch):
        remedy = f"use {request.workload.batch}, the question's own, or more"
        raise UsageError("not a number of sequences", field="most", value=most, remedy=remedy)
    return compared(request, names, given, most)


def simulate(plan: Plan | Decision) -> dict[str, Any]:
    """Return what a replay of all steps of a plan in virtual time gives, as `helm-sim --json` prints it.

    >>> from helmsman import plan
    >>> simulate(plan({"model": "Qwen3-0.6B", "hardware": "rtx4060-laptop", "strategy": "layer-split"}))["ttft_s"] > 0
    True
    """
    from helmsman.planner.plan_costs import cost_model
    from helmsman.simulator.pricing import median_price
    from helmsman.simulator.report import document
    from helmsman.simulator.stream import simulate as replayed
    from helmsman.simulator.synchronisation import synchronisation

    plan = plan.plan if isinstance(plan, Decision) else plan
    if not isinstance(plan, Plan):
        raise UsageError("not a plan", value=plan, remedy="give a Plan, or the Decision that has it")
    costs = cost_model(plan)
    stream = replayed(plan, median_price(plan), costs.between(), slowed=costs.slowed())
    return document(plan, stream, synchronisation(plan))


def _names(strategies: Sequence[str] | None) -> tuple[str, ...]:
    """The strategies to compare, each once. Raises UsageError for those that are none, and for fewer than two."""
    if isinstance(strategies, str) or not isinstance(strategies, Sequence | None):
        raise UsageError("not several names", field="strategies", value=strategies, remedy="give a list of names")
    names = OWN if strategies is None else tuple(dict.fromkeys(map(str, strategies)))
    for name in names:
        method(name)
    if len(names) < 2:
        raise UsageError("several strategies are compared", field="strategies", value=list(names), remedy="use plan()")
    return names


def _request(question: Asked) -> PlanRequest[Any]:
    if isinstance(question, PlanRequest):
        return question
    return request_from(question, profiles_folder)
