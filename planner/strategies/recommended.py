"""`best`, the default strategy: what `optimal`, whole layers on either device, and the placements of llama.cpp and vLLM
would do, and the one to recommend. For models that `optimal` does not know, `expert-split` searches, or nothing does.

It asks other strategies by name and imports none of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from helmsman.planner.machine import roles
from helmsman.planner.options import option
from helmsman.planner.registry import RECOMMENDED, Method, method
from helmsman.planner.strategies.common_options import OptimalOptions
from helmsman.schemas.errors import BadInputError, InfeasibleError, UsageError

if TYPE_CHECKING:
    from helmsman.planner.choice import Choice, Contender, Risk
    from helmsman.planner.cost.model import CostOptions
    from helmsman.planner.decision import Decision
    from helmsman.planner.request import PlanRequest
    from helmsman.schemas.hardware import Hardware
    from helmsman.schemas.objective import Objective
    from helmsman.schemas.plan import Certificate, Plan

SEARCHED = "optimal"
EXPERTS = "expert-split"
"""The strategy that searches for models with routed experts, which `optimal` does not know."""
SEARCHES: Mapping[str, Mapping[str, object]] = {SEARCHED: {}, EXPERTS: {"executed": True}}
"""The strategies that search, with their options: what is recommended can be run."""
SIMPLE: tuple[tuple[str, Mapping[str, object]], ...] = (
    ("layer-split", {"undivided": True}),
    ("layer-split", {}),
    ("llama-cpp", {"same_software": True}),
)
"""Strategies whose plans people have without Helm, with their options: one device alone, whole layers on either, and
the placement of llama.cpp, priced with the executor that would run them."""

OFFLOADING: tuple[str, Mapping[str, object]] = ("vllm", {"same_software": True, "cpu_offload_gb": "least"})
"""vLLM's placement on one accelerator, part of the weights in the host's memory, priced likewise: not of dense models
on several accelerators, of which the search finds better ones."""

FITTED: tuple[str, Mapping[str, object]] = ("llama-cpp", {"same_software": True, "fit": True})
"""llama.cpp's own placement of experts, and of layers on several accelerators: for models that `optimal` does not know,
whose search uses one."""

DIVIDED: tuple[str, Mapping[str, object]] = ("llama-cpp", {"same_software": True, "split_mode": "layer"})
"""Whole layers on several accelerators, as many as fit: for dense models, whose search may share blocks among all."""

_ROUNDING = 1e-9
"""Relative difference that is none."""


@dataclass(frozen=True, slots=True)
class RecommendedOptions(OptimalOptions):
    """Options of `best`: those of `optimal`, and by what plans are ranked."""

    risk: "Risk" = option(
        "median",
        "best: rank plans by the median of their seconds, giving the simplest of those that cannot be told apart, by "
        "the 95th percentile (pessimistic), or by the most that is lost when one figure is at an end of its interval "
        "(regret)",
        choices=("median", "pessimistic", "regret"),
    )


def _decide(request: "PlanRequest[RecommendedOptions]") -> "Decision":
    """The decision to recommend, with the proof of the search, and with what was passed over for it.

    Raises InfeasibleError as the search does where no strategy has a plan."""
    from helmsman.planner.choice import choose

    options = request.options
    refused: InfeasibleError | None = None
    searched: Decision | None = None
    name = _searching(request)
    try:
        searched = None if name is None else _answer(request, name, SEARCHES[name])
    except InfeasibleError as error:
        refused = error
    except UsageError:
        if request.model.is_dense:
            raise
    simple = {(contender.plan.strategy.name, contender.plan.label): contender for contender in _simple(request)}
    contenders = [contender for decision in simple.values() for contender in _contender(request, decision, simple=True)]
    if searched is not None:
        contenders += _contender(request, searched, simple=False)
    if not contenders or (options.explain and searched is None):
        raise refused or _refusal(request)
    choice = choose(contenders, options.risk)
    doubts = dict.fromkeys(doubt for decision in simple.values() for doubt in decision.warnings)
    if options.explain and searched is not None:
        return searched.doubted((*doubts, *_doubts_of_explained(choice.chosen, searched)))
    return replace(_decision(request, choice, contenders, searched), warnings=tuple(doubts))


def _searching(request: "PlanRequest[RecommendedOptions]") -> str | None:
    """Return the strategy that searches for a model; None where none does."""
    if request.model.is_dense:
        return SEARCHED
    if request.options.explain:
        problem = f"{request.model.name} is not made of equal dense blocks"
        raise UsageError(f"only `optimal` explains, and {problem}", field="explain", remedy="leave it out")
    return EXPERTS if request.model.routed else None


def _refusal(request: "PlanRequest[RecommendedOptions]") -> InfeasibleError:
    """Return what the first of the simple strategies lacks where none has a plan, and nothing was searched."""
    try:
        _answer(request, "layer-split", {})
    except InfeasibleError as error:
        return error
    message, remedy = f"no plan for {request.model.name} keeps the limits", "raise them, or ask for fewer tokens"
    return InfeasibleError(message, remedy=remedy)


def _answer(request: "PlanRequest[RecommendedOptions]", strategy: str, chosen: Mapping[str, object]) -> "Decision":
    """The decision of one strategy with the options `chosen`."""
    from helmsman.planner.mixed_formats import decide_mixed

    asked = method(strategy)
    return decide_mixed(_request_for(request, strategy, chosen), asked.decide, asked.propose)


def _request_for(
    request: "PlanRequest[RecommendedOptions]", strategy: str, chosen: Mapping[str, object]
) -> "PlanRequest[Any]":
    """The question to one strategy with the options `chosen`, and those of the request that it has; all of them know
    the user's table."""
    other, own = method(strategy), request.options
    shared = {field.name: getattr(own, field.name) for field in fields(other.options) if hasattr(own, field.name)}
    if own.table is not None and "table" not in shared:
        request = replace(request, hardware=_with_table(request, own.table))
    return request.of(strategy, other.options(**{**shared, **chosen}))


def _fits(request: "PlanRequest[RecommendedOptions]") -> bool:
    """Whether the search has a plan, or, where no limit is to be kept, a simple strategy."""
    from helmsman.planner.fits import would_fit

    simple = _simple_of(request) if request.options.slo is None else ()
    name = _searching(request)
    requests = [_request_for(request, other, options) for other, options in simple]
    if name is not None:
        requests.append(_request_for(request, name, SEARCHES[name]))
    return any(map(would_fit, requests))


def _with_table(request: "PlanRequest[RecommendedOptions]", table: Path) -> "Hardware":
    """The machine with the user's table among its own."""
    from helmsman.planner.strategies.streaming.framing import frame_of

    frame = frame_of(request, table)
    return request.hardware.model_copy(update={"tables": frame.roles.hardware.tables})


def _doubts_of_explained(chosen: "Contender", searched: "Decision") -> Iterator[str]:
    """That another plan is recommended than the one that is explained, where that is so."""
    if chosen.decision.plan.label != searched.plan.label:
        yield f"the search's own plan is explained; without `explain`, {chosen.decision.plan.label} is recommended"


def _simple_of(request: "PlanRequest[RecommendedOptions]") -> tuple[tuple[str, Mapping[str, object]], ...]:
    """Return the simple strategies for a model and a machine, with their options. The executor computes a block with
    norms after its bodies on one device: for dense models of such blocks llama.cpp's placement keeps products of
    prompts on the device that has their weights."""
    several = len(roles(request.hardware).accelerators) > 1
    if request.model.is_dense:
        return (*SIMPLE, DIVIDED if several else OFFLOADING)
    strategies = (*SIMPLE, OFFLOADING, FITTED) if request.model.routed or several else (*SIMPLE, OFFLOADING)
    if request.model.routed or not any(layout.normed_after for layout in request.model.layouts):
        return strategies
    whole = {"llama-cpp": {"no_op_offload": True}}
    return tuple((name, {**options, **whole.get(name, {})}) for name, options in strategies)


def _simple(request: "PlanRequest[RecommendedOptions]") -> "Iterator[Decision]":
    """Those of the simple strategies that have a plan; vLLM's only where not all fits the accelerator, which is what it
    would do there, too."""
    whole = False
    for name, options in _simple_of(request):
        if name == "vllm" and whole:
            continue
        try:
            decision = _answer(request, name, options)
        except (InfeasibleError, UsageError):
            continue
        except BadInputError:
            if request.model.is_dense:
                raise
            continue
        whole = whole or _on_accelerator(decision.plan)
        yield decision


def _on_accelerator(plan: "Plan") -> bool:
    """Whether one accelerator does everything."""
    devices = {rule.device for rule in plan.compute}
    return len(devices) == 1 and plan.hardware.device(devices.pop()).kind != "cpu"


def _contender(request: "PlanRequest[RecommendedOptions]", decision: "Decision", simple: bool) -> "Iterator[Contender]":
    """The decision as one to choose, by its seconds for all batches, as `--strategy all` compares; none where it misses
    a limit."""
    from helmsman.lowering.placement import batches_together
    from helmsman.planner.choice import Contender
    from helmsman.planner.prediction.objective import weighted_interval, weights_of_all
    from helmsman.planner.slo import limits_of

    options, objective = request.prices, request.objective
    if simple:
        decision = _of_all_batches(_at_same_prices(decision, options, objective), objective)
    plan, together = decision.plan, batches_together(decision.plan)
    predicted, turns = plan.predicted, plan.workload.batches / together
    seconds = {"prefill": turns * predicted.prefill.seconds.mid, "decode": turns * predicted.decode.seconds.mid}
    if any(seconds[phase] > limit for phase, limit in limits_of(request.options.slo).items()):
        return
    weights = weights_of_all(objective, plan.workload, together)
    yield Contender(decision, weighted_interval(weights, predicted), simple, weights, options)


def _of_all_batches(decision: "Decision", objective: "Objective") -> "Decision":
    """The decision with the seconds in which every sequence has its next token, or its first, where the objective is of
    one pass and batches take turns."""
    from helmsman.lowering.placement import batches_together

    turns = decision.plan.workload.batches / batches_together(decision.plan)
    if objective not in ("latency", "ttft") or turns == 1:
        return decision
    others = tuple((label, turns * seconds) for label, seconds in decision.runner_ups)
    lacking = tuple(replace(rejected, seconds=turns * rejected.seconds) for rejected in decision.rejected)
    return replace(decision, seconds=turns * decision.seconds, runner_ups=others, rejected=lacking)


def _at_same_prices(decision: "Decision", options: "CostOptions", objective: "Objective") -> "Decision":
    """The decision of a simple strategy as the search prices plans: by the operation table that fits. Candidates that
    were compared at other prices have no place beside it."""
    from helmsman.lowering.placement import batches_together
    from helmsman.planner.cost.footprint import at_footprint
    from helmsman.planner.cost.model import CostModel
    from helmsman.planner.cost.table_prices import table_prices
    from helmsman.planner.prediction.objective import objective_seconds
    from helmsman.planner.prediction.predict import predict

    plan = decision.plan
    costs = CostModel(at_footprint(plan), options, table_prices(plan))
    if costs.table is None or plan.strategy.options.get("operation_table", False):
        return decision
    strategy = plan.strategy.model_copy(update={"options": {**plan.strategy.options, "operation_table": True}})
    plan = plan.model_copy(update={"strategy": strategy, "predicted": predict(plan, costs)})
    took = objective_seconds(plan.predicted, plan.workload, batches_together(plan), objective).mid
    return replace(decision, drafted=plan, seconds=took, runner_ups=(), rejected=())


def _decision(
    request: "PlanRequest[RecommendedOptions]",
    choice: "Choice",
    contenders: "list[Contender]",
    searched: "Decision | None",
) -> "Decision":
    """The chosen decision: its plan says what was passed over, and has the proof of the search."""
    from helmsman.schemas.plan import PassedOver

    chosen = choice.chosen.decision
    passed = tuple(
        PassedOver(
            strategy=contender.decision.plan.strategy.name,
            label=contender.decision.plan.label,
            seconds=contender.seconds.mid,
            gain=saved,
        )
        for contender, saved in choice.passed_over
    )
    strategy = chosen.plan.strategy
    strategy = strategy.model_copy(update={"options": {**strategy.options, "risk": request.options.risk}})
    changed: dict[str, object] = {"strategy": strategy, "passed_over": passed}
    if searched is not None and chosen is not searched:
        changed["certificate"] = _proof(request.objective, chosen.plan, searched.plan)
    others = [
        contender
        for contender in contenders
        if contender is not choice.chosen and contender.seconds.mid >= choice.chosen.seconds.mid
    ]
    seen = {chosen.plan.label, *(label for label, _ in chosen.runner_ups)}
    more = [(other.decision.plan.label, other.seconds.mid) for other in others if other.decision.plan.label not in seen]
    runner_ups = tuple(sorted((*chosen.runner_ups, *more), key=lambda pair: pair[1]))
    return replace(chosen, drafted=chosen.plan.model_copy(update=changed), runner_ups=runner_ups)


def _proof(objective: "Objective", plan: "Plan", searched: "Plan") -> "Certificate | None":
    """The proof of the search for another plan than its own: none that it could have made takes less than its bound.
    No proof where the plan, being none of those, takes less: the bound says nothing about it."""
    from helmsman.lowering.placement import batches_together
    from helmsman.planner.prediction.objective import weighted_interval, weights_of_all
    from helmsman.schemas.plan import Certificate

    if searched.certificate is None:
        return None
    weights = weights_of_all(objective, plan.workload, batches_together(plan))
    seconds = weighted_interval(weights, plan.predicted).mid
    bound = searched.certificate.lower_bound
    if bound > seconds * (1.0 + _ROUNDING):
        return None
    bound = min(bound, seconds)
    return Certificate(
        objective=searched.certificate.objective,
        seconds=seconds,
        lower_bound=bound,
        gap=seconds / bound - 1 if bound else 0.0,
        ways=searched.certificate.ways,
    )


STRATEGY = Method(
    RECOMMENDED,
    "the simplest of the plans of optimal, layer-split, llama-cpp and vllm that cannot be told apart from the fastest",
    RecommendedOptions,
    _decide,
    fits=_fits,
)
