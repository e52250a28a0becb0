"""What serves the requests of `helm-sim`: replicas of the plan, their policy, and what it is wrong about."""

import argparse
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING

from helmsman.cli.serving_arguments import ROUTERS, STAGES
from helmsman.schemas.errors import UsageError

if TYPE_CHECKING:
    from helmsman.planner.replica import ReplicaOptions
    from helmsman.schemas.plan import Plan
    from helmsman.simulator.serving.run import Setup

POLICY = "gpu-only"

_OPTIONS = (
    "tensor_parallel",
    "pipeline_parallel",
    "batch_tokens",
    "chunk",
    "sequences",
    "utilisation",
    "gpu_tokens",
    "cpu_tokens",
)
"""Of ReplicaOptions, what the command line says."""


def setup_of(args: argparse.Namespace, plan: "Plan") -> "Setup":
    """Costs and limits of the plan's replicas, and the policy.

    Raises UsageError for policies, options and factors that there are not, InfeasibleError without room for caches."""
    from helmsman.planner.iteration_cost import replica_cost
    from helmsman.scheduler.policies import checked_options
    from helmsman.simulator.serving.run import Setup

    name, factors = policies(args)[0], _factors(args.mispredict)
    try:
        options = checked_options(name, _pairs(args.policy_option, "--policy-option"))
        cohorts = {"cohorts": int(options["cohorts"])} if "cohorts" in options else {}
        replica = replica_cost(plan, replace(_replica_options(args), **cohorts))
    except UsageError as error:
        error.field = _argument(error.field)
        raise
    return Setup(
        cost=replica.cost.scaled(**factors),
        believed=replica.cost,
        limits=replica.limits,
        policy=name,
        options=options,
        replicas=args.replicas or 1,
        router=args.router or ROUTERS[0],
    )


def _argument(field: str | None) -> str:
    """What the command line calls a field of policies and replicas; other fields are a policy's own options."""
    fields = ("policy", *_OPTIONS)
    return "--" + field.replace("_", "-") if field in fields else "--policy-option"


def policies(args: argparse.Namespace) -> list[str]:
    """Those that --policy names, each once."""
    return list(dict.fromkeys((POLICY if args.policy is None else args.policy).split(",")))


def with_policy(setup: "Setup", policy: str, field: str = "--relative-to") -> "Setup":
    """The same replicas under another policy, with its own defaults; `field`: who asks for it.

    Raises UsageError for a policy that there is not."""
    from helmsman.scheduler.policies import checked_options

    if policy == setup.policy:
        return setup
    try:
        return replace(setup, policy=policy, options=checked_options(policy, {}))
    except UsageError as error:
        error.field = field
        raise


def with_cpu_bandwidth(setup: "Setup", factor: float) -> "Setup":
    """Replicas whose hosts attend `factor` times as fast, as policies know."""
    slower = {"cpu_attention": 1.0 / factor}
    return replace(setup, cost=setup.cost.scaled(**slower), believed=setup.believed.scaled(**slower))


def _replica_options(args: argparse.Namespace) -> "ReplicaOptions":
    """How the plan is served, by what was said of it."""
    from helmsman.planner.replica import ReplicaOptions

    return ReplicaOptions(**{name: getattr(args, name) for name in _OPTIONS if getattr(args, name) is not None})


def _factors(given: list[str]) -> dict[str, float]:
    """How many times as long stages take as the policy believes."""
    factors = {}
    for stage, text in _pairs(given, "--mispredict").items():
        if stage not in STAGES:
            raise UsageError("no such stage", field="--mispredict", value=stage, remedy=f"use {', '.join(STAGES)}")
        factors[STAGES[stage]] = _factor(text)
    return factors


def _factor(text: str) -> float:
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not (isfinite(factor) and 1e-3 <= factor <= 1e3):
        raise UsageError("not a factor", field="--mispredict", value=text, remedy="write cpu-attention=1.3")
    return factor


def _pairs(given: list[str], option: str) -> dict[str, str]:
    """`name=value` of an option that may be given several times."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name or name in found:
            raise UsageError("not name=value, or one twice", field=option, value=text, remedy="write each once")
        found[name] = value
    return found
