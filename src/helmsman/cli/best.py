"""`--strategy best`, the default: what `optimal`, whole layers on either device, and the placements of llama.cpp and
vLLM would do, and the one to recommend."""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from helmsman.schemas.errors import InfeasibleError, UsageError

if TYPE_CHECKING:
    from helmsman.planner.choice import Choice, Contender
    from helmsman.planner.costs import CostOptions
    from helmsman.planner.decide import Decision
    from helmsman.schemas.objective import Objective
    from helmsman.schemas.plan import Certificate, Plan

BEST_STRATEGY = "best"
SEARCHED = "optimal"
SIMPLE: tuple[tuple[str, Mapping[str, object]], ...] = (
    ("layer-split", {"undivided": True}),
    ("layer-split", {}),
    ("llama-cpp", {"same_software": True}),
    ("vllm", {"same_software": True, "cpu_offload_gb": "least"}),
)
"""Strategies whose plans people have without Helm, with their options: one device alone, whole layers on either, and
the placements of llama.cpp and vLLM, priced with the executor that would run them."""

_ROUNDING = 1e-9
"""Relative difference that is none."""

Ask = Callable[[str, Mapping[str, object]], "Decision"]
"""What a strategy decides with options of its own. Raises what it raises."""


def recommended(args: argparse.Namespace, ask: Ask) -> "Decision":
    """The decision to recommend, with the proof of the search, and with what was passed over for it.

    Raises InfeasibleError as the search does where no strategy has a plan."""
    refused: InfeasibleError | None = None
    searched: Decision | None = None
    try:
        searched = ask(SEARCHED, {})
    except InfeasibleError as error:
        refused = error
    simple = {(each.plan.strategy.name, each.plan.label): each for each in _simple(ask)}
    contenders = [each for decision in simple.values() for each in _contender(args, decision, simple=True)]
    if searched is not None:
        contenders += _contender(args, searched, simple=False)
    if not contenders or (args.explain and searched is None):
        assert refused is not None, "a search without a plan says why"
        raise refused
    from helmsman.planner.choice import choose

    choice = choose(contenders, args.risk)
    if args.explain and searched is not None:
        _warn_of_explained(choice.chosen, searched)
        return searched
    return _decision(args, choice, contenders, searched)


def _warn_of_explained(chosen: "Contender", searched: "Decision") -> None:
    """Say on standard error that another plan is recommended than the one that is explained, where that is so."""
    if chosen.decision.plan.label != searched.plan.label:
        what = f"the search's own plan is explained; without --explain, {chosen.decision.plan.label} is recommended"
        print(f"helm-plan: warning: {what}", file=sys.stderr)


def _simple(ask: Ask) -> "Iterator[Decision]":
    """Those of the simple strategies that have a plan; vLLM's only where not all fits the accelerator, which is what it
    would do there, too."""
    whole = False
    for name, options in SIMPLE:
        if name == "vllm" and whole:
            continue
        try:
            decision = ask(name, options)
        except (InfeasibleError, UsageError):
            continue
        whole = whole or _on_accelerator(decision.plan)
        yield decision


def _on_accelerator(plan: "Plan") -> bool:
    """Whether one accelerator does everything."""
    devices = {rule.device for rule in plan.compute}
    return len(devices) == 1 and plan.hardware.device(devices.pop()).kind != "cpu"


def _contender(args: argparse.Namespace, decision: "Decision", simple: bool) -> "Iterator[Contender]":
    """The decision as one to choose, by its seconds for all batches, as `--strategy all` compares; none where it misses
    a limit."""
    from helmsman.cli.optimum import limits_of
    from helmsman.lowering.placement import batches_together
    from helmsman.planner.choice import Contender
    from helmsman.planner.costs import CostOptions
    from helmsman.planner.objective import weighted_interval, weights_of_all

    options = CostOptions(not args.no_corrections, args.l3_blend)
    if simple:
        decision = _of_all_batches(_at_same_prices(decision, options, args.objective), args.objective)
    plan, together = decision.plan, batches_together(decision.plan)
    predicted, turns = plan.predicted, plan.workload.batches / together
    seconds = {"prefill": turns * predicted.prefill.seconds.mid, "decode": turns * predicted.decode.seconds.mid}
    if any(seconds[phase] > limit for phase, limit in limits_of(args.slo).items()):
        return
    weights = weights_of_all(args.objective, plan.workload, together)
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
    from helmsman.planner.costs import CostModel
    from helmsman.planner.footprint import at_footprint
    from helmsman.planner.objective import objective_seconds
    from helmsman.planner.predict import predict
    from helmsman.planner.table_prices import table_prices

    plan = decision.plan
    costs = CostModel(at_footprint(plan), options, table_prices(plan))
    if costs.table is None or plan.strategy.options.get("operation_table", False):
        return decision
    strategy = plan.strategy.model_copy(update={"options": {**plan.strategy.options, "operation_table": True}})
    plan = plan.model_copy(update={"strategy": strategy, "predicted": predict(plan, costs)})
    took = objective_seconds(plan.predicted, plan.workload, batches_together(plan), objective).mid
    return replace(decision, plan=plan, seconds=took, runner_ups=(), rejected=())


def _decision(
    args: argparse.Namespace, choice: "Choice", contenders: "list[Contender]", searched: "Decision | None"
) -> "Decision":
    """The chosen decision: its plan says what was passed over, and has the proof of the search."""
    from helmsman.schemas.plan import PassedOver

    chosen = choice.chosen.decision
    passed = tuple(
        PassedOver(
            strategy=each.decision.plan.strategy.name,
            label=each.decision.plan.label,
            seconds=each.seconds.mid,
            gain=saved,
        )
        for each, saved in choice.passed_over
    )
    strategy = chosen.plan.strategy
    strategy = strategy.model_copy(update={"options": {**strategy.options, "risk": args.risk}})
    changed: dict[str, object] = {"strategy": strategy, "passed_over": passed}
    if searched is not None and chosen is not searched:
        changed["certificate"] = _proof(args, chosen.plan, searched.plan)
    others = [
        each for each in contenders if each is not choice.chosen and each.seconds.mid >= choice.chosen.seconds.mid
    ]
    seen = {chosen.plan.label, *(label for label, _ in chosen.runner_ups)}
    more = [(each.decision.plan.label, each.seconds.mid) for each in others if each.decision.plan.label not in seen]
    runner_ups = tuple(sorted((*chosen.runner_ups, *more), key=lambda pair: pair[1]))
    return replace(chosen, plan=chosen.plan.model_copy(update=changed), runner_ups=runner_ups)


def _proof(args: argparse.Namespace, plan: "Plan", searched: "Plan") -> "Certificate | None":
    """The proof of the search for another plan than its own: none that it could have made takes less than its bound.
    No proof where the plan, being none of those, takes less: the bound says nothing about it."""
    from helmsman.lowering.placement import batches_together
    from helmsman.planner.objective import weighted_interval, weights_of_all
    from helmsman.schemas.plan import Certificate

    if searched.certificate is None:
        return None
    weights = weights_of_all(args.objective, plan.workload, batches_together(plan))
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
