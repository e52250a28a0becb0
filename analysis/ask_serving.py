"""Answers questions about serving: one run, a sweep of runs, or the maximum rate under an SLO."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal

from helmsman.planner.serving.iteration_cost import replica_cost
from helmsman.planner.serving.replica import ReplicaOptions
from helmsman.scheduler.policies import checked_options
from helmsman.schemas.errors import UsageError
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import digest
from helmsman.schemas.served_table import FINISHED, ServedInfo
from helmsman.schemas.serving import ServingCapacity, ServingReport, ServingSweep, Slo
from helmsman.schemas.serving_question import ServingQuestion, ServingSetting, Stage, shown
from helmsman.simulator.serving.capacity import find_capacity
from helmsman.simulator.serving.metrics import goodput
from helmsman.simulator.serving.report import duration_of, report
from helmsman.simulator.serving.requests.arrivals import parse_arrivals
from helmsman.simulator.serving.requests.request_source import AS_THEY_ARE, Lengths, RequestSource, open_source
from helmsman.simulator.serving.run import Outcome, Setup, serve
from helmsman.simulator.serving.slo import parse_slo
from helmsman.simulator.serving.sweep import Sweep, sweep

SEEDS = 5
"""Draws of arrivals over which a capacity is the mean."""
_REPLICA = tuple(field.name for field in fields(ReplicaOptions) if field.name in ServingSetting.model_fields)
"""Fields of `ReplicaOptions` that a question has."""
_COSTS: dict[Stage, str] = {
    "linear": "linear",
    "gpu-attention": "gpu_attention",
    "cpu-attention": "cpu_attention",
    "link": "link",
}
"""The fields of `IterationCost` whose seconds a mispredicted stage scales."""

Ran = Callable[[], object]
"""A callback after every simulated run, for progress bars."""


@dataclass(frozen=True)
class ServingStudy:
    """A question whose plan, policy and requests have been read: what serves (`setup`), who asks, what is demanded."""

    plan_sha256: str
    question: ServingQuestion
    setup: Setup
    source: RequestSource
    slo: Slo | None

    def run(self, setup: Setup, seed: int, rate: float | None = None, lengths: Lengths = AS_THEY_ARE) -> Outcome:
        """Serve the requests with a seed, a rate and lengths of a study."""
        info = ServedInfo(
            source="simulated",
            plan_sha256=self.plan_sha256,
            policy=setup.policy,
            options=dict(setup.options),
            requests=shown(self.question.requests),
            seed=seed,
            replicas=setup.replicas,
            router=setup.router,
        )
        return serve(self.source.requests(seed, rate, lengths), setup, info)


def study_of(plan: Plan, question: ServingQuestion) -> ServingStudy:
    """Read what a question names.

    Raises UsageError for policies, options, arrivals and SLOs that there are not, BadInputError for a file of requests,
    InfeasibleError without room for caches."""
    slo = None if question.slo is None else parse_slo(question.slo)
    arrivals = None if question.arrivals is None else parse_arrivals(question.arrivals)
    setup = setup_of(plan, question)
    who = open_source(question.requests, question.rate, arrivals, question.sort, question.limit)
    return ServingStudy(digest(plan), question, setup, who, slo)


def setup_of(plan: Plan, setting: ServingSetting) -> Setup:
    """Return costs and limits of the plan's replicas, and the policy.

    Raises UsageError for policies and options that there are not, InfeasibleError without room for caches."""
    words = {True: "yes", False: "no"}
    said = {name: value for name, value in setting.policy_options.items() if value is not None}
    options = _options(
        setting.policy, {name: words[value] if isinstance(value, bool) else str(value) for name, value in said.items()}
    )
    given = {name: getattr(setting, name) for name in _REPLICA if getattr(setting, name) is not None}
    cohorts = {"cohorts": int(options["cohorts"])} if "cohorts" in options else {}
    replica = replica_cost(plan, ReplicaOptions(**given, **cohorts))
    factors = {_COSTS[stage]: factor for stage, factor in setting.mispredict.items()}
    return Setup(
        cost=replica.cost.scaled(**factors),
        believed=replica.cost,
        limits=replica.limits,
        policy=setting.policy,
        options=options,
        replicas=setting.replicas,
        router=setting.router,
    )


def served(study: ServingStudy) -> tuple[Outcome, ServingReport]:
    """Serve the requests once."""
    outcome = study.run(study.setup, study.question.seed)
    return outcome, report(outcome.served, study.slo, outcome.activity)


def capacity(study: ServingStudy, seeds: int = SEEDS, ran: Ran = lambda: None) -> ServingCapacity:
    """Find the maximum rate that keeps the SLO; where arrivals are drawn, from as many `seeds`.

    Raises UsageError without an SLO, InfeasibleError where every rate keeps it or none does."""
    slo, first = study.slo, study.question.seed
    if slo is None:
        raise UsageError("a capacity is the maximum rate under an SLO", field="slo", remedy="write ttft=2s,tpot=100ms")
    together = study.run(study.setup, first).served
    finished = int((together.status == FINISHED).sum())
    guess = max(1, finished) / max(duration_of(together), 1e-9)

    def keeps(rate: float, seed: int) -> bool:
        outcome = study.run(study.setup, seed, rate).served
        ran()
        return goodput(outcome, slo, duration_of(outcome)).met

    draws = range(first, first + (seeds if study.source.drawn else 1))
    estimate = find_capacity(keeps, guess, draws)
    return ServingCapacity(
        run=together.info,
        slo=slo,
        rate=estimate.rate,
        low=estimate.low,
        high=estimate.high,
        runs=estimate.runs,
        seeds=estimate.seeds,
    )


def swept(
    study: ServingStudy, over: Sweep, policies: Sequence[str], relative_to: str | None = None, ran: Ran = lambda: None
) -> ServingSweep:
    """Serve at every value of a sweep under each of the policies, and under one more to compare throughput with.

    Raises UsageError for policies that there are not."""
    setups = {name: with_policy(study.setup, name) for name in policies}
    if relative_to is not None:
        setups[relative_to] = with_policy(study.setup, relative_to, "relative_to")

    def run(value: float, policy: str) -> ServingReport:
        setup = setups[policy]
        setup = _with_cpu_bandwidth(setup, value) if over.over == "cpu-bandwidth" else setup
        rate = value if over.over == "rate" else None
        tokens = round(value)
        lengths = {"input": Lengths(prompt=tokens), "output": Lengths(output=tokens)}.get(over.over, AS_THEY_ARE)
        outcome = study.run(setup, study.question.seed, rate, lengths)
        ran()
        return report(outcome.served, study.slo, outcome.activity)

    return sweep(over, policies, run, relative_to)


def with_policy(setup: Setup, policy: str, field: Literal["policy", "relative_to"] = "policy") -> Setup:
    """Return the setup of the same replicas under another policy, whose options have their defaults; `field`: the
    option that names the policy, for errors.

    Raises UsageError for a policy that there is not."""
    if policy == setup.policy:
        return setup
    try:
        return replace(setup, policy=policy, options=checked_options(policy, {}))
    except UsageError as error:
        error.field = field
        raise


def _options(policy: str, given: dict[str, str]) -> dict[str, str | int | float | bool]:
    """Return all options of a policy. Raises UsageError, about `policy` or `policy_options`."""
    try:
        return checked_options(policy, given)
    except UsageError as error:
        error.field = "policy" if error.field == "policy" else "policy_options"
        raise


def _with_cpu_bandwidth(setup: Setup, factor: float) -> Setup:
    """Replicas whose hosts attend `factor` times as fast, as policies know."""
    slower = {"cpu_attention": 1.0 / factor}
    return replace(setup, cost=setup.cost.scaled(**slower), believed=setup.believed.scaled(**slower))
