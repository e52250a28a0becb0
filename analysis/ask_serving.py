"""Answers questions about serving: one run, or a sweep of runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal, Self

from helmsman.planner.serving.iteration_cost import replica_cost
from helmsman.planner.serving.replica import ReplicaOptions
from helmsman.scheduler.policies import checked_options, policy_options
from helmsman.schemas.errors import UsageError
from helmsman.schemas.plan import Plan
from helmsman.schemas.read import digest
from helmsman.schemas.served_table import ServedInfo
from helmsman.schemas.serving import ServingReport, ServingSweep, Slo
from helmsman.schemas.serving_question import ServingQuestion, ServingSetting, Stage, shown
from helmsman.simulator.serving.report import report
from helmsman.simulator.serving.requests.arrivals import parse_arrivals
from helmsman.simulator.serving.requests.closed_loop import NO_THINK, parse_think
from helmsman.simulator.serving.requests.request_source import (
    AS_ASKED,
    AS_THEY_ARE,
    Lengths,
    RequestSource,
    Variation,
    open_source,
)
from helmsman.simulator.serving.run import Outcome, Setup, serve
from helmsman.simulator.serving.slo import parse_slo
from helmsman.simulator.serving.sweep import Sweep, sweep

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
class ServingLoad:
    """Holds a serving question whose requests have been read, for whatever plan: their `source`, the demanded `slo`."""

    question: ServingQuestion
    source: RequestSource
    slo: Slo | None

    def with_users(self, users: int) -> Self:
        """Return the same in which as many users send the requests.

        Raises UsageError where the question says when they arrive."""
        _refuse_arrivals(self.question)
        return replace(self, source=replace(self.source, users=users))


@dataclass(frozen=True)
class ServingStudy(ServingLoad):
    """Holds a serving question whose plan and policy have been read too: the `setup` that serves."""

    plan_sha256: str
    setup: Setup

    def run(self, setup: Setup, seed: int, variation: Variation = AS_ASKED) -> Outcome:
        """Serve the requests with a seed and a variation of them."""
        users = self.source.users if variation.users is None else variation.users
        return serve(self.source.requests(seed, variation), setup, self.info(setup, seed, users))

    def info(self, setup: Setup, seed: int, users: int | None) -> ServedInfo:
        """Return what a table of served requests belongs to."""
        return ServedInfo(
            source="simulated",
            plan_sha256=self.plan_sha256,
            policy=setup.policy,
            options=dict(setup.options),
            requests=shown(self.question.requests),
            seed=seed,
            replicas=setup.replicas,
            router=setup.router,
            users=users,
            think=self.question.think,
        )


def load_of(question: ServingQuestion) -> ServingLoad:
    """Return what a question names without a plan.

    Raises UsageError for arrivals, think times and SLOs that there are not, and for users with a rate or arrivals,
    BadInputError for a file of requests."""
    slo = None if question.slo is None else parse_slo(question.slo)
    arrivals = None if question.arrivals is None else parse_arrivals(question.arrivals)
    think = NO_THINK if question.think is None else parse_think(question.think)
    if question.users is not None:
        _refuse_arrivals(question)
    source = open_source(question.requests, question.rate, arrivals, question.sort, question.limit)
    return ServingLoad(question, replace(source, users=question.users, think=think), slo)


def study_of(plan: Plan, question: ServingQuestion) -> ServingStudy:
    """Return what a question names, with the plan that serves. Raises what `setup_of` and `load_of` raise."""
    setup, load = setup_of(plan, question), load_of(question)
    source = load.source
    if setup.limits.states and not setup.limits.snapshots:  # a state is that of the last token, not of a prefix
        source = source.without_prefixes()
    return ServingStudy(question, source, load.slo, digest(plan), setup)


def replica_options(setting: ServingSetting) -> tuple[dict[str, str | int | float | bool], ReplicaOptions]:
    """Return all options of the policy, and those of replicas that it decides for.

    Raises UsageError for policies and options that there are not."""
    words = {True: "yes", False: "no"}
    said = {name: value for name, value in setting.policy_options.items() if value is not None}
    options = _options(
        setting.policy, {name: words[value] if isinstance(value, bool) else str(value) for name, value in said.items()}
    )
    given = {name: getattr(setting, name) for name in _REPLICA if getattr(setting, name) is not None}
    cohorts = {"cohorts": int(options["cohorts"])} if "cohorts" in options else {}
    stores = "cpu" not in policy_options(setting.policy).homes and options.get("preemption") == "swap"
    return options, ReplicaOptions(**given, **cohorts, stores=stores)


def setup_of(plan: Plan, setting: ServingSetting) -> Setup:
    """Return costs and limits of the plan's replicas, and the policy.

    Raises UsageError for policies and options that there are not, InfeasibleError without room for caches."""
    options, of_replicas = replica_options(setting)
    replica = replica_cost(plan, of_replicas)
    engine = any(memory.reserved is not None for memory in plan.hardware.memories)
    ahead = engine if setting.ahead is None else setting.ahead
    factors = {_COSTS[stage]: factor for stage, factor in setting.mispredict.items()}
    return Setup(
        cost=replica.cost.scaled(**factors),
        believed=replica.cost,
        limits=replace(replica.limits, keeps=engine, ahead=ahead),
        policy=setting.policy,
        options=options,
        replicas=setting.replicas,
        router=setting.router,
    )


def served(study: ServingStudy) -> tuple[Outcome, ServingReport]:
    """Serve the requests once. Raises UsageError for a think time without users."""
    refuse_think_alone(study)
    outcome = study.run(study.setup, study.question.seed)
    return outcome, report(outcome.served, study.slo, outcome.activity)


def swept(
    study: ServingStudy, over: Sweep, policies: Sequence[str], relative_to: str | None = None, ran: Ran = lambda: None
) -> ServingSweep:
    """Serve at every value of a sweep under each of the policies, and under one more to compare throughput with.

    Raises UsageError for policies that there are not, and for rates of users."""
    refuse_think_alone(study)
    if over.over == "rate" and study.source.users is not None:
        raise UsageError("users send at a rate of their own", field="sweep", value="rate", remedy="leave users out")
    setups = {name: with_policy(study.setup, name) for name in policies}
    if relative_to is not None:
        setups[relative_to] = with_policy(study.setup, relative_to, "relative_to")

    def run(value: float, policy: str) -> ServingReport:
        setup = setups[policy]
        setup = _with_cpu_bandwidth(setup, value) if over.over == "cpu-bandwidth" else setup
        rate = value if over.over == "rate" else None
        tokens = round(value)
        lengths = {"input": Lengths(prompt=tokens), "output": Lengths(output=tokens)}.get(over.over, AS_THEY_ARE)
        outcome = study.run(setup, study.question.seed, Variation(rate, lengths))
        ran()
        return report(outcome.served, study.slo, outcome.activity)

    return sweep(over, policies, run, relative_to)


def with_policy(setup: Setup, policy: str, field: Literal["policy", "relative_to"] = "policy") -> Setup:
    """Return the setup of the same replicas under another policy, whose options have their defaults; `field`: the
    option that names the policy, for errors.

    Raises UsageError for a policy that there is not."""
    if policy == setup.policy:
        return setup
    stores = setup.limits.states  # where requests keep states the host attends to none, and by default keeps none
    limits = replace(setup.limits, cpu_tokens=0) if stores else setup.limits
    try:
        return replace(setup, policy=policy, options=checked_options(policy, {}), limits=limits)
    except UsageError as error:
        error.field = field
        raise


def refuse_think_alone(load: ServingLoad) -> None:
    """Raise UsageError for a think time without users."""
    if load.question.think is not None and load.source.users is None:
        remedy = "say how many users think, or ask for the most users"
        raise UsageError("nobody thinks", field="think", value=load.question.think, remedy=remedy)


def _refuse_arrivals(question: ServingQuestion) -> None:
    """Raise UsageError for a rate or arrivals: users send requests when they have an answer."""
    for name, value in (("rate", question.rate), ("arrivals", question.arrivals)):
        if value is not None:
            remedy = f"leave {name} out, or the users"
            raise UsageError("users send when they have thought", field=name, value=value, remedy=remedy)


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
